//! The configuration of hosts: our server added and removed, and a check that it starts and answers.

mod configured;
pub(crate) mod install;
#[cfg(test)]
mod tests;
