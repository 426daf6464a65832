//! `cp-shell` from end to end: pipe mode, and interactive sessions with a script, at a terminal and with a hub.
#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod agent;
mod changes;
mod config;
mod governance;
mod hub;
mod keys;
mod person;
mod pipe;
mod pipe_operations;
mod piped;
mod release;
mod terminal;
mod tree;
mod turn;
mod update;
mod update_breaks;
