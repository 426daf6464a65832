//! HTTP for a filter: one request at a time, each wait bounded and ended by a signal.

pub(crate) mod client;
mod net;
pub(crate) mod proxy;
pub(crate) mod sse;
pub(crate) mod status;
mod tls;
