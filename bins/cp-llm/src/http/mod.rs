//! HTTP for a filter: one POST at a time, every wait bounded, every wait ended by a signal.

pub(crate) mod client;
mod net;
pub(crate) mod proxy;
pub(crate) mod sse;
pub(crate) mod status;
