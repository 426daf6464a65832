//! A run that is under way: what it was started with, where it stands, and the records in which each step is written before it is taken.

use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::wire::Receipt;
use cp_common::{Error, Result};

use crate::state::conversation::Conversation;
use crate::state::journal::Journal;
use crate::state::plan::{Limits, Plan};
use crate::state::step::{Decision, Step};
use crate::state::step_log::StepLog;

/// A run that is under way.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) conversation: Conversation,
    pub(crate) deadline: Option<Instant>,
    /// A replay writes none.
    records: Option<Records>,
}

/// Where a run is written down.
pub(crate) struct Records {
    /// The exact state.
    pub(crate) steps: StepLog,
    /// The ledger.
    pub(crate) journal: Journal,
}

impl Run {
    /// A run that stands where `conversation` says. Its time begins now.
    pub(crate) fn new(plan: Plan, conversation: Conversation, records: Option<Records>) -> Self {
        let deadline = deadline_of(&conversation.limits);
        Self { plan, conversation, deadline, records }
    }

    /// Goes on with a run that stopped, within these limits.
    pub(crate) fn resume(&mut self, limits: Limits) -> Result<()> {
        self.note(|journal| journal.resumed(&limits))?;
        if limits != self.conversation.limits {
            self.step(Step::Limits(limits))?;
        }
        self.deadline = deadline_of(&limits);
        Ok(())
    }

    /// Takes the decision of `by` about a call.
    pub(crate) fn decide(&mut self, at: usize, decision: Decision, by: &str) -> Result<()> {
        let call = self.conversation.calls[at].asked.id.clone();
        self.note(|journal| journal.decision(&call, &decision, by))?;
        self.step(Step::Decided(at, decision))
    }

    /// Writes a step down, then takes it.
    pub(crate) fn step(&mut self, step: Step) -> Result<()> {
        if let Some(records) = &mut self.records {
            records.steps.append(&step)?;
        }
        self.conversation.take(step)
    }

    /// Writes an entry into the ledger. Where it stands; a replay writes none.
    pub(crate) fn note(&mut self, what: impl FnOnce(&mut Journal) -> Result<Receipt>) -> Result<Option<Receipt>> {
        self.records.as_mut().map(|records| what(&mut records.journal)).transpose()
    }

    /// Waits until the disk has everything: before what cannot be undone.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(records) = &mut self.records else { return Ok(()) };
        records.journal.sync()?;
        records.steps.sync()
    }

    /// Starts a process that holds the run's lock too: see [`StepLog::shared`].
    pub(crate) fn shared<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        match &self.records {
            Some(records) => records.steps.shared(start),
            None => start(),
        }
    }

    /// What goes into the conversation of an answer that is too long for it: its beginning and its end, without secrets. The whole is
    /// kept beside the ledger; a replay has none, and no such answers.
    pub(crate) fn shortened(&self, answer: &str) -> Result<Option<String>> {
        match &self.records {
            Some(records) => records.journal.shortened(answer),
            None => Ok(None),
        }
    }

    /// The run is over: nothing is left to go on with.
    pub(crate) fn complete(&mut self) -> Result<()> {
        let tally = self.conversation.tally;
        self.note(|journal| journal.end("completed", &tally))?;
        match self.records.take() {
            Some(records) => records.steps.close(self.plan.record.as_deref()),
            None => Ok(()),
        }
    }

    /// The ledger; a replay has none.
    pub(crate) fn ledger(&self) -> Option<&Path> {
        self.records.as_ref().map(|records| records.journal.path())
    }

    /// The command that goes on with this run.
    pub(crate) fn resume_line(&self, more: &str) -> String {
        format!("cp-toolloop resume {}{more}", self.plan.run)
    }

    /// Adds the command that goes on with this run, whatever the reason for the stop.
    pub(crate) fn resumable(&self, error: Error, home: &Path) -> Error {
        let mut error = error.with("run_id", self.plan.run.as_str());
        if self.records.is_none() {
            return error;
        }
        let home = quoted(&home.display().to_string());
        let details = error.details();
        for name in ["resume", "otherwise"] {
            let line = match details.get(name).and_then(|line| line.as_str()) {
                Some(line) if line.starts_with("cp-toolloop ") => line.to_owned(),
                _ if name == "resume" => self.resume_line(""),
                _ => continue,
            };
            error = error.with(name, line.replacen("cp-toolloop ", &format!("cp-toolloop --home {home} "), 1));
        }
        error
    }
}

fn deadline_of(limits: &Limits) -> Option<Instant> {
    limits.deadline.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds))
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if word.bytes().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
