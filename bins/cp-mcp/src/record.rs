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
    tool: String,
    call_id: Option<String>,
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
        let entry = self.entry(event).data(data);
        self.ledger()?.append(entry).map_err(Error::fatal)
    }

    /// Appends an event to the ledger and syncs it, before its effect.
    pub(crate) fn intend(&mut self, event: &str, data: &impl Serialize) -> Result<Receipt> {
        let receipt = self.note(event, data)?;
        self.sync()?;
        Ok(receipt)
    }

    /// Appends a call to the ledger, before it is made.
    pub(crate) fn start(&mut self, entry: &impl Serialize, tool: &str, call_id: Option<String>) -> Result<Started> {
        let receipt = self.note("mcp.call", entry)?;
        Ok(Started { receipt, tool: tool.to_owned(), call_id, began: Instant::now() })
    }

    /// Appends the result of a call to the ledger: its hash, and the blob of a long one. A cancelled call has none.
    pub(crate) fn end(
        &mut self,
        call: Option<&Started>,
        is_error: bool,
        hash: Option<&str>,
        output: Option<Value>,
    ) -> Result<()> {
        let Some(Started { receipt, tool, call_id, began }) = call else { return Ok(()) };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut end = json!({
            "call": receipt.seq,
            "tool": tool,
            "is_error": is_error,
            "sha256": hash,
            "duration_ms": duration_ms,
        });
        if let Some(id) = call_id {
            end["call_id"] = json!(id);
        }
        if let Some(output) = output {
            end["output"] = output;
        }
        self.note("mcp.result", &end).map(drop)
    }

    /// Appends an event of an approval to the ledger and syncs it.
    pub(crate) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> Result<Receipt> {
        let entry = said.about(approval, self.entry(said.event()));
        let receipt = self.ledger()?.append(entry).map_err(Error::fatal)?;
        self.sync()?;
        Ok(receipt)
    }

    /// Syncs the ledger to the disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.ledger.as_mut().map_or(Ok(()), Ledger::sync).map_err(Error::fatal)
    }

    /// The path of the ledger.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn entry(&self, event: &str) -> Entry {
        let entry = Entry::new(event).agent(self.agent.clone());
        let entry = self.session.iter().fold(entry, |entry, session| entry.session(session.clone()));
        self.run.iter().fold(entry, |entry, run| entry.run(run.clone()))
    }

    fn ledger(&mut self) -> Result<&mut Ledger> {
        Ledger::once(&mut self.ledger, &self.path, Sync::Batch)
    }
}
