//! `cp-mcp` as an agent meets it.

mod proxy;
mod proxy_hostile;
mod proxy_servers;
mod session;
