//! `cp-mcp` as an agent meets it.

mod connect;
mod connect_sdk;
mod proxy;
mod proxy_hostile;
mod proxy_servers;
mod session;
