//! Runs commands after a decision: intent on the ledger, sandbox helper, captured output, result on the ledger.

mod capture;
mod cgroup;
pub(crate) mod client;
mod clients;
mod engine;
pub(crate) mod helper;
mod inside;
mod journal;
mod outcome;
mod prepared;
mod provenance;
mod questions;
mod result;
pub(crate) mod stdin;
mod steps;
mod supervise;

pub(crate) use self::engine::Engine;
pub(crate) use self::outcome::{NotRun, Stream, Watch};
pub(crate) use self::prepared::{Prepared, RunResult};
pub(crate) use self::result::FinishedRun;
