//! `cp-mcp` as an agent meets it.

mod connect;
mod connect_sdk;
mod proxy;
mod session;
