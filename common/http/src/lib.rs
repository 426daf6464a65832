//! HTTP for programs that wait on one thread a request: each wait has an end, and a signal or another thread ends it too.

pub mod client;
pub mod sse;

mod net;
mod proxy;
mod tls;

pub use self::net::{Stop, is_ended, pause, stopped_by};
