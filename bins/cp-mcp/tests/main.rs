//! `cp-mcp` as an agent meets it.

mod proxy;
mod session;
