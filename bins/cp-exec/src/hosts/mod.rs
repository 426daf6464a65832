//! The configuration of the hosts: the files of their hooks, edits that add and remove our hook, and the test that a
//! host calls it.

mod canary;
mod configured;
#[cfg(test)]
mod tests;

pub(crate) use self::canary::{Canary, run_canary};
pub(crate) use self::configured::{Command, add_hook, file_of, lines, program_in, remove_hook};
