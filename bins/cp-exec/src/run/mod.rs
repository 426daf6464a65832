//! Runs commands after a decision: intent on the ledger, sandbox helper, captured output, result on the ledger.

pub(crate) mod approvals;
pub(crate) mod client;
mod clients;
pub(crate) mod helper;
mod journal;
mod prepared;
mod provenance;
mod result;
mod steps;
pub(crate) mod streams;
mod supervise;

pub(crate) use self::journal::quoted;
pub(crate) use self::prepared::{Engine, Prepared, RunResult, until_answered};
pub(crate) use self::result::{FinishedRun, NotRun, Stream, Watch};
