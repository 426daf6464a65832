//! What goes on the ledger: who is served or stood before, each call before it is made, and what came of it.

use cp_common::wire::{Approval, Receipt};
use cp_common::{Context, Error, Result};
use cp_ledger::format::approval::Said;
use cp_ledger::{Entry, Ledger, Sync, effect_path};
use serde::Serialize;

/// The writer of this program's entries. The ledger is opened with the first of them.
pub(crate) struct Journal {
    path: std::path::PathBuf,
    ledger: Option<Ledger>,
    agent: String,
    session: Option<String>,
    run: Option<String>,
}

impl Journal {
    /// One for what this command line does.
    pub(crate) fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            path: effect_path(context, "cp-mcp.jsonl")?,
            ledger: None,
            agent: context.agent(None),
            session: context.session(),
            run: context.options.run.clone(),
        })
    }

    /// Puts an event on the ledger.
    pub(crate) fn note(&mut self, event: &str, data: &impl Serialize) -> Result<Receipt> {
        let entry = self.entry(event).data(data);
        self.ledger()?.append(entry).map_err(Error::fatal)
    }

    /// Puts an event on the ledger, on the disk when this returns: for what is recorded before its effect.
    pub(crate) fn intend(&mut self, event: &str, data: &impl Serialize) -> Result<Receipt> {
        let receipt = self.note(event, data)?;
        self.sync()?;
        Ok(receipt)
    }

    /// Puts what happened to an approval on the ledger, on the disk when this returns.
    pub(crate) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> Result<Receipt> {
        let entry = said.about(approval, self.entry(said.event()));
        let receipt = self.ledger()?.append(entry).map_err(Error::fatal)?;
        self.sync()?;
        Ok(receipt)
    }

    /// All that was put on the ledger is on the disk when this returns.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.ledger.as_mut().map_or(Ok(()), Ledger::sync).map_err(Error::fatal)
    }

    /// Where the ledger is: large values are kept beside it.
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
