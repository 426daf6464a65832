//! The program from end to end: the real parts, the stub model playing a script, real tools in the sandbox.
#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod approvals;
mod backend;
mod blocks;
mod edits;
mod group_kill;
mod mcp;
mod mcp_proxy;
mod project;
mod replay;
mod resume;
mod rows;
mod run;
mod servers;
mod stopped;
mod sweep;
mod toolloop;
mod tools;
mod undo;
mod work;
