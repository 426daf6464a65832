//! What carries out calls: cp-exec as a coprocess, one for each call that runs at the same time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::coprocess::{self, Part, unexpected};
use cp_common::wire::record::Kind;
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Context, Result};

/// The coprocesses, by slot. Each works on one call at a time, so neither side ever waits for the other to read.
pub(crate) struct Executor {
    directories: Vec<PathBuf>,
    read_only: bool,
    slots: BTreeMap<usize, Part>,
}

impl Executor {
    /// An executor that finds tools in these directories, and may let them write. Nothing is started before the first call.
    pub(crate) fn new(directories: Vec<PathBuf>, read_only: bool) -> Self {
        Self { directories, read_only, slots: BTreeMap::new() }
    }

    /// Starts a call in a slot, which must be free.
    pub(crate) fn start(&mut self, slot: usize, call: &ToolCall, context: &Context) -> Result<()> {
        let mut part = match self.slots.remove(&slot) {
            Some(part) => part,
            None => self.start_part(context)?,
        };
        part.send(Kind::ToolCall, call)?;
        self.slots.insert(slot, part);
        Ok(())
    }

    /// Waits for the result of the call in a slot, at most so long: `None` when that was not enough. A refusal is an error that is
    /// not fatal.
    pub(crate) fn result(&mut self, slot: usize, limit: Option<Duration>) -> Result<Option<ToolResult>> {
        let Some(part) = self.slots.get_mut(&slot) else { return Ok(None) };
        if let Some(limit) = limit
            && !part.wait(limit)?
        {
            return Ok(None);
        }
        part.receive(|name, record| match record.kind {
            Some(Kind::ToolResult) => record.read().map(Some),
            _ => Err(unexpected(name, record)),
        })
    }

    /// Stops the coprocess of a slot, and the tool that it runs with it.
    pub(crate) fn stop(&mut self, slot: usize) {
        self.slots.remove(&slot);
    }

    /// Lets the coprocesses leave in their own time.
    pub(crate) fn finish(&mut self) -> Result<()> {
        std::mem::take(&mut self.slots).into_values().try_for_each(Part::finish)
    }

    fn start_part(&self, context: &Context) -> Result<Part> {
        let mut argv = vec![coprocess::find("cp-exec")?.into_os_string(), "--closed".into()];
        argv.extend(context.handed_on());
        argv.extend(self.read_only.then(|| "--read-only".into()));
        // That of a link that is gone may have been swept since the run began.
        for directory in self.directories.iter().filter(|directory| directory.is_dir()) {
            argv.extend(["--tools".into(), directory.into()]);
        }
        Part::start(&argv)
    }
}
