//! Command lines, lowered: from a string in the everyday part of the shell's language to steps that policy can decide about. No shell
//! ever sees the string.
//!
//! What is accepted runs the commands that bash would run, with the same words, variables, files and statuses. All else is refused with
//! its place. Arrows point down: `line -> command -> {builtins, redirects} -> word -> scan -> {known, refusal}`, all on `steps` and
//! `glob`, which with `flow` is for whoever runs them; `check` is for steps that were given outright.

mod builtins;
mod check;
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

pub(crate) use self::check::check;
pub(crate) use self::known::Environment;
pub(crate) use self::line::lower;
