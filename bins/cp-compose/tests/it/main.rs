//! `cp-compose` as a shell user meets it. The session comes from a stand-in for cp-session that lies beside the program.

#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod around;
mod attach;
mod compose;
mod explain;
mod governed;
mod house;
mod memory;
mod project;
#[path = "../../../cp-session/tests/it/ran.rs"]
mod ran;
mod session;
mod system;
mod template;
mod tools;
