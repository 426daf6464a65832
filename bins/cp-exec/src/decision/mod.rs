//! The decision about one command: may it run, as which file, where, and under which limits.
//!
//! [`crate::arguments`] go to the rules, their finding and the policy become a ruling, and the ruling holds the plan that the
//! sandbox is built from. Nothing here starts a process or writes to the ledger.

mod allowed;
pub(crate) mod confirm;
mod decide;
mod directory;
mod environment;
mod hashes;
mod layers;
mod line;
mod lowered;
mod paths;
mod plan;
mod program;
mod redirects;
mod rules;
mod ruling;
mod served;
mod watched;
mod words;
mod written;

pub(crate) use self::decide::{Considered, consider, decide, timeout_of};
pub(crate) use self::directory::Directory;
pub(crate) use self::hashes::Hashes;
pub(crate) use self::line::{Deciding, Line, Part, decide_line};
pub(crate) use self::lowered::lowered;
pub(crate) use self::paths::declared_by_modules;
pub(crate) use self::plan::{Planned, plan};
pub(crate) use self::program::Names;
pub(crate) use self::rules::{Risk, built_in, wrong_example};
pub(crate) use self::ruling::Ruling;
pub(crate) use self::watched::{KnownLink, Watched, identity};
pub(crate) use self::words::Expansion;
