//! `cp-mcp` as an agent meets it.

mod conformance;
mod connect;
mod connect_sdk;
mod hostile;
mod libraries;
mod proxy;
mod proxy_hostile;
mod proxy_servers;
mod session;
