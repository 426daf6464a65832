//! `cp-session` as a shell user meets it.

#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod append;
mod compact;
mod delete;
mod lifecycle;
mod load;
mod memory;
mod naming;
mod queries;
mod sessions;
mod start;
mod sweep;
mod tee;
