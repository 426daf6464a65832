//! HTTP for a filter: one request at a time, each wait bounded and ended by a signal.

pub(crate) use cp_http::{client, sse};

pub(crate) mod status;
