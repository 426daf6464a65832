//! `cp-session` as a shell user meets it: a file for each verb.

#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod append;
mod check;
mod clear;
mod compact;
mod count;
mod delete;
mod end;
mod export;
mod fork;
mod list;
mod load;
mod memory;
mod naming;
mod search;
mod sessions;
mod show;
mod start;
mod sweep;
mod tee;
