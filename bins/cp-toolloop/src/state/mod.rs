//! Where a run stands and what is on record: its plan, its steps, its ledger, and the files that hold them.

mod budget;
pub(crate) mod changes;
pub(crate) mod conversation;
pub(crate) mod files;
mod find;
pub(crate) mod found;
pub(crate) mod journal;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod step;
pub(crate) mod step_log;
pub(crate) mod summary;
pub(crate) mod tally;
pub(crate) mod waiting;
