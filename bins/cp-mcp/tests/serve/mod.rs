//! `cp-mcp serve`, spoken to by hand in both eras.

mod approvals;
mod client;
mod hostile;
mod long;
mod protocol;
mod stops;
mod tools;
