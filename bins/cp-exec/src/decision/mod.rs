//! The decision about one command: if it may run, which file is executed, in which directory, and under which limits.
//!
//! [`crate::rules`] judges the arguments. A finding and the policy become a ruling, which holds the plan of the
//! sandbox. This module starts no process and does not write to the ledger.

mod checks;
pub(crate) mod confirm;
mod decide;
mod plan;
mod program;
mod step;
mod watched;

pub(crate) use self::checks::check_modules;
pub(crate) use self::decide::{Assessment, Ruling, assess, decide, line_of, read_string, shell_words, timeout_of};
pub(crate) use self::plan::{Planned, plan};
pub(crate) use self::program::HashCache;
pub(crate) use self::program::ProgramLookup;
pub(crate) use self::step::{Caller, StepRuling, StepVerdict, decide_step};
pub(crate) use self::watched::{KnownLink, Watched, identity};
