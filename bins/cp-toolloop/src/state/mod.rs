//! The state of a run: its plan, its steps, its ledger, and their files.

pub(crate) mod call_end;
pub(crate) mod changes;
pub(crate) mod conversation;
pub(crate) mod journal;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod step;
pub(crate) mod step_log;
pub(crate) mod summary;
pub(crate) mod tally;
