//! The entries about a run while it runs. The limits of a run do not hold for the memory and the ledger of its
//! supervisor, so that what it says has a budget.

use std::time::Instant;

use cp_common::wire::Approval;
use cp_common::{Error, Result};
use cp_ledger::Entry;
use cp_ledger::format::approval::Said;
use serde::Serialize;

use super::journal::Journal;
use crate::policy::Policy;
use crate::refusal::refuse;

/// The bytes that a run may add at once, and those that it may add with each second.
const AT_ONCE: u64 = 8 << 20;
const WITH_EACH_SECOND: u64 = 16 << 10;
/// The bytes of an entry without what the run says in it.
const ENTRY: u64 = 512;
/// The batch size of entries that need no sync.
const BATCH: usize = 64;

/// Records what a run does, for steps, approvals, tool calls and connections.
pub(crate) struct Recorder {
    pub journal: Journal,
    pub intent: u64,
    pending: Vec<Entry>,
    since: Instant,
    /// The bytes of the run so far.
    spent: u64,
    /// The error of the ledger. All later steps are refused.
    pub failed: Option<Error>,
}

impl Recorder {
    pub(super) fn new(policy: &Policy, intent: u64) -> Self {
        let (journal, since) = (Journal::new(policy), Instant::now());
        Self { journal, intent, pending: Vec::new(), since, spent: 0, failed: None }
    }

    /// Takes the bytes of one more entry. False if too few are left.
    pub(super) fn take(&mut self, said: usize) -> bool {
        let needed = ENTRY.saturating_add(said as u64);
        let granted = AT_ONCE + WITH_EACH_SECOND * self.since.elapsed().as_secs();
        let is_left = self.spent.saturating_add(needed) <= granted;
        self.spent += if is_left { needed } else { 0 };
        is_left
    }

    /// Takes the bytes of an entry about something, or refuses it.
    pub(super) fn charge(&mut self, said: &impl Serialize) -> Result<()> {
        if self.take(serde_json::to_vec(said).map_or(usize::MAX, |said| said.len())) {
            return Ok(());
        }
        Err(refuse("requests", "the run says more than is recorded").hint("repeat it later, or with fewer words"))
    }

    /// Adds an entry, which is written with others.
    pub(super) fn add(&mut self, event: &str, data: &impl Serialize) {
        self.pending.push(self.journal.entry(event).with("intent", &self.intent).data(data));
        if self.pending.len() >= BATCH {
            self.write();
        }
    }

    /// Writes the entries that were added.
    pub(super) fn write(&mut self) {
        let written = self.journal.append_all(std::mem::take(&mut self.pending));
        self.note(written.map(drop));
    }

    /// Writes an event of an approval, and syncs it. False if that failed.
    pub(super) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> bool {
        let written = self.journal.approval(said, approval);
        self.note(written.map(drop))
    }

    fn note(&mut self, written: Result<()>) -> bool {
        written.map_err(|error| self.failed.get_or_insert(error)).is_ok()
    }
}
