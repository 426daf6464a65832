//! The configuration of the hosts: where each keeps its hooks, ours put in and taken out, and the proof that a host asks it.

mod canary;
mod configured;
mod model;
#[cfg(test)]
mod tests;

pub(crate) use self::canary::{Canary, fire};
pub(crate) use self::configured::{Command, file_of, lines, program_in, with_ours, without_ours};
