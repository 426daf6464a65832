//! The steps of a run. They have the exact data that a resume needs.

use cp_common::wire::{Approval, Delta, Grant, Message, ToolResult, Usage};
use serde::{Deserialize, Serialize};

use crate::state::plan::{Limits, Plan};

/// One step of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// The plan, and the process that has made it; the first step and no other.
    Plan(Box<Plan>, Owner),
    /// A process resumes the run with these limits.
    Resumed(Owner, Limits),
    /// The deltas of the model's next answer, if the run is recorded.
    Deltas(Vec<Delta>),
    /// The model has answered.
    Message(Box<Message>),
    /// A failed answer used this.
    Billed(Usage),
    /// A call of the last message is about to start.
    Started(usize),
    /// A started call did not run.
    Withdrawn(usize),
    /// A call is about to get a result without a start.
    Refused(usize),
    /// A call has its result.
    Finished(usize, Box<ToolResult>),
    /// The stored records have been printed.
    Shown,
    /// A call waits for this approval.
    Asked(usize, Box<Approval>),
    /// A call was approved or denied.
    Decided(usize, Decision),
}

/// The process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// Its start time in kernel ticks, because process ids are reused.
    pub(crate) started: u64,
}

/// The decision of a person or of the approver about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    /// The call may start once.
    Approved(Box<Grant>),
    /// The call must not run.
    Denied {
        /// The reason for the model.
        why: String,
        /// Who denied it.
        by: String,
    },
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        Self { pid, started: started(pid).unwrap_or(0) }
    }

    /// True if the same process is still running.
    pub(crate) fn is_alive(self) -> bool {
        self.started != 0 && started(self.pid) == Some(self.started)
    }
}

/// The start time of a process: the 22nd field of its `stat`, counted after the name, which may contain spaces.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_identified_by_id_and_start_time() {
        let this = Owner::this();
        assert!(this.is_alive());
        assert!(!Owner { started: this.started + 1, ..this }.is_alive());
    }
}
