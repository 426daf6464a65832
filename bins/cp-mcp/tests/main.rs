//! `cp-mcp` as an agent meets it.
#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod install;
mod serve;
