//! One step of a run: what happened, exactly. The steps of a run are all that a resume needs.

use cp_common::wire::{Approval, Delta, Grant, Message, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::state::plan::{Limits, Plan};
use crate::state::tally::Spent;

/// One step of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// What the run was started with. The first step, and only that.
    Plan(Box<Plan>),
    /// A process took the run over.
    Owner(Owner),
    /// A resume changed the limits.
    Limits(Limits),
    /// What came of the model's next answer before it was whole, where the run is kept.
    Deltas(Vec<Delta>),
    /// Old results were taken out of the conversation.
    Cleared(Vec<Cleared>),
    /// A summary that the model wrote stands for the turns before this one, the question left out.
    Summarised(usize, Box<Message>),
    /// The model answered.
    Message(Box<Message>),
    /// The program before tools saw a call of the last message.
    Screened(usize, Screened),
    /// A call of the last message is about to be dispatched.
    Started(usize),
    /// A call of the last message is worked on by an agent, in the run of this id.
    Delegated(usize, String),
    /// What the agent of a call used.
    Spent(usize, Spent),
    /// A call of the last message was not run after all.
    Withdrawn(usize),
    /// A call of the last message has its result.
    Finished(usize, Box<ToolResult>),
    /// What the step before was about has been printed.
    Shown,
    /// A call of the last message waits for an answer to this.
    Asked(usize, Box<Approval>),
    /// A call of the last message was approved or denied.
    Decided(usize, Decision),
}

/// What the program before tools made of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Screened {
    /// It is made as it is.
    Passed,
    /// It is made with these arguments.
    Changed(Box<RawValue>),
    /// It is not made; the reason that the model is given.
    Denied(String),
}

/// A result that was taken out of the conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cleared {
    pub(crate) turn: usize,
    /// Its place among the blocks of the turn.
    pub(crate) block: usize,
    /// What stands there now.
    pub(crate) note: String,
}

/// How the conversation was made shorter.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Compacted {
    /// About how many tokens it was.
    pub(crate) estimated_tokens: usize,
    /// How many results were taken out.
    pub(crate) results: usize,
    /// How many turns a summary stands for.
    pub(crate) turns: usize,
}

/// The process that runs a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks: ids are used again.
    pub(crate) started: u64,
}

/// What a person or the approver decided about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    /// It may start once.
    Approved(Box<Grant>),
    /// It must not run; the reason that the model is given.
    Denied(String),
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        Self { pid, started: started(pid).unwrap_or(0) }
    }

    /// Whether the process is still there, and is the same one.
    pub(crate) fn is_alive(self) -> bool {
        self.started != 0 && started(self.pid) == Some(self.started)
    }
}

/// When a process started: the 22nd field of its `stat`, counted after the name, which may hold anything.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_id_and_its_start() {
        let this = Owner::this();
        assert!(this.is_alive());
        assert!(!Owner { started: this.started + 1, ..this }.is_alive());
    }
}
