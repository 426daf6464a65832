//! Runs commands after a decision: intent on the ledger, sandbox helper, captured output, result on the ledger.

pub(crate) mod approvals;
mod capture;
mod cgroup;
pub(crate) mod client;
mod clients;
pub(crate) mod helper;
mod journal;
mod prepared;
mod provenance;
mod result;
pub(crate) mod stdin;
mod steps;
mod supervise;

pub(crate) use self::journal::quoted;
pub(crate) use self::prepared::{Engine, Prepared, RunResult};
pub(crate) use self::result::{FinishedRun, NotRun, Stream, Watch};
