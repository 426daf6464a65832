//! Runs what is decided: intent on the ledger, sandbox helper, captured output, result on the ledger.

mod capture;
mod cgroup;
mod engine;
pub(crate) mod helper;
mod journal;
mod line;
mod outcome;
mod prepared;
mod result;
mod starts;
pub(crate) mod stdin;
mod supervise;

pub(crate) use self::engine::Engine;
pub(crate) use self::outcome::{NotRun, Stream, Watch};
pub(crate) use self::prepared::{Outcomes, Prepared};
pub(crate) use self::result::Done;
