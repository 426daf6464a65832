//! `cp-mcp` as an agent meets it.
#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]
#![expect(clippy::needless_pass_by_value, reason = "what is sent is written as a literal")]

mod conformance;
mod connect;
mod connect_sdk;
mod hostile;
mod libraries;
mod proxy;
mod proxy_hostile;
mod proxy_servers;
mod serve;
mod session;
