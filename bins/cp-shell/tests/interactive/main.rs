//! The session with a person, end to end: as a script, at a real terminal, and with a hub.
#![expect(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a failure to set up is a failed test")]

mod hub;
mod piped;
mod support;
mod terminal;
