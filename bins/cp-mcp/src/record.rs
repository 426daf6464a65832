//! The ledger entries of this program: clients, servers, each call before it is made, and its result.

use std::time::Instant;

use cp_common::wire::{Approval, AskedBy, Receipt};
use cp_common::{Context, Error, Result};
use cp_ledger::format::approval::Said;
use cp_ledger::{Entry, Ledger, Sync, effect_path};
use serde::Serialize;
use serde_json::{Value, json};

/// A call on the ledger, before its result.
pub(crate) struct Started {
    pub(crate) receipt: Receipt,
    /// What is known of the entry of its result.
    end: Value,
    began: Instant,
}

/// The writer of ledger entries. The first entry opens the ledger.
pub(crate) struct Journal {
    path: std::path::PathBuf,
    ledger: Option<Ledger>,
    agent: String,
    session: Option<String>,
    run: Option<String>,
    /// The id of the call of the run that is being made.
    pub(crate) call: Option<String>,
}

impl Journal {
    /// A journal in this context.
    pub(crate) fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            path: effect_path(context, "cp-mcp.jsonl")?,
            ledger: None,
            agent: context.agent(None),
            session: context.session(),
            run: context.options.run.clone(),
            call: None,
        })
    }

    /// Records what follows on the ledger of a run.
    pub(crate) fn follow(&mut self, run: &str, ledger: &std::path::Path) {
        (self.run, self.path, self.ledger) = (Some(run.to_owned()), ledger.to_owned(), None);
    }

    /// Who asks for an approval.
    pub(crate) fn asked_by(&self) -> AskedBy {
        let (program, agent) = ("cp-mcp".to_owned(), self.agent.clone());
        AskedBy { program, agent, run: self.run.clone(), session: self.session.clone(), call_id: self.call.clone() }
    }

    /// Appends an event to the ledger.
    pub(crate) fn note(&mut self, event: &str, data: &impl Serialize) -> Result<Receipt> {
        self.append(self.entry(event).data(data))
    }

    /// Appends a call to the ledger, before it is made.
    pub(crate) fn start(&mut self, entry: Entry, tool: &str, call_id: Option<String>) -> Result<Started> {
        let receipt = self.append(entry)?;
        let mut end = json!({ "call": receipt.seq, "tool": tool });
        if let Some(id) = call_id {
            end["call_id"] = id.into();
        }
        Ok(Started { receipt, end, began: Instant::now() })
    }

    /// Appends the result of a call to the ledger: its hash, and the blob of a long one. A cancelled call has none.
    pub(crate) fn end(
        &mut self,
        call: Option<&Started>,
        is_error: bool,
        hash: Option<&str>,
        output: Option<Value>,
    ) -> Result<()> {
        let Some(Started { end, began, .. }) = call else { return Ok(()) };
        let mut end = end.clone();
        end["is_error"] = is_error.into();
        end["sha256"] = hash.into();
        end["duration_ms"] = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).into();
        if let Some(output) = output {
            end["output"] = output;
        }
        self.note("mcp.result", &end).map(drop)
    }

    /// Appends an event of an approval to the ledger and syncs it.
    pub(crate) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> Result<Receipt> {
        let receipt = self.append(said.about(approval, self.entry(said.event())))?;
        self.sync().map(|()| receipt)
    }

    /// Syncs the ledger to the disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.ledger.as_mut().map_or(Ok(()), Ledger::sync).map_err(Error::fatal)
    }

    /// The path of the ledger.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// An entry of this journal.
    pub(crate) fn entry(&self, event: &str) -> Entry {
        let entry = Entry::new(event).agent(self.agent.clone());
        let entry = self.session.iter().fold(entry, |entry, session| entry.session(session.clone()));
        self.run.iter().fold(entry, |entry, run| entry.run(run.clone()))
    }

    /// Appends an entry to the ledger.
    pub(crate) fn append(&mut self, entry: Entry) -> Result<Receipt> {
        Ledger::once(&mut self.ledger, &self.path, Sync::Batch)?.append(entry).map_err(Error::fatal)
    }
}
