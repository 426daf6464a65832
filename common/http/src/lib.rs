//! Blocking HTTP. Each wait has a time limit, and a signal or another thread can end it.

pub mod client;
pub mod sse;

mod net;
mod tls;

pub use self::net::pause;
