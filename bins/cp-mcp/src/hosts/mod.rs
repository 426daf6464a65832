//! The configuration of the hosts: where each keeps its servers, ours put in and taken out, and the proof that it starts and answers.

mod configured;
mod table;
#[cfg(test)]
mod tests;
mod visit;

pub(crate) use self::configured::{file_of, server, with_ours, without_ours};
pub(crate) use self::visit::{Seen, visit};
