//! Command lines, lowered: from a string in the everyday part of the shell's language to steps that policy can decide about. No shell
//! ever sees the string.
//!
//! What is accepted runs the commands that bash would run, with the same words, variables, files and statuses. All else is refused with
//! its place. Arrows point down: `line -> command -> {builtins, redirects} -> word -> {scan, known} -> refusal -> steps`; `flow` and
//! `glob` are for whoever runs the steps.

mod builtins;
mod command;
pub(crate) mod flow;
pub(crate) mod glob;
mod known;
mod line;
mod redirects;
pub(crate) mod refusal;
mod scan;
pub(crate) mod steps;
mod word;

#[cfg(test)]
mod tests;

pub(crate) use self::known::Environment;
pub(crate) use self::line::{Lowered, lower};
