//! What carries out calls: cp-exec as a coprocess, one for each call that runs at the same time.

use std::path::PathBuf;

use cp_common::part::{self, Part};
use cp_common::record::Kind;
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Context, Result};

use crate::seam;

/// The coprocesses. Each works on one call at a time, so neither side ever waits for the other to read.
pub(crate) struct Executor {
    directories: Vec<PathBuf>,
    parts: Vec<Part>,
}

impl Executor {
    /// An executor that finds tools in these directories. Nothing is started before the first call.
    pub(crate) fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, parts: Vec::new() }
    }

    /// Starts a call in a slot, which must be free.
    pub(crate) fn start(&mut self, slot: usize, call: &ToolCall, context: &Context) -> Result<()> {
        while self.parts.len() <= slot {
            let started = self.start_part(context)?;
            self.parts.push(started);
        }
        self.parts[slot].send(Kind::ToolCall, call)
    }

    /// Waits for the result of the call in a slot. A refusal is an error that is not fatal.
    pub(crate) fn result(&mut self, slot: usize) -> Result<ToolResult> {
        seam::next(&mut self.parts[slot], |name, record| {
            if !record.ok {
                return Err(seam::failure(name, record));
            }
            match record.kind {
                Some(Kind::ToolResult) => record.read(),
                _ => Err(seam::unexpected(name, record)),
            }
        })
    }

    /// Lets the coprocesses leave in their own time.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.parts.drain(..).try_for_each(Part::finish)
    }

    fn start_part(&self, context: &Context) -> Result<Part> {
        let mut argv = vec![part::find("cp-exec")?.display().to_string(), "--closed".to_owned()];
        argv.extend(context.handed_on());
        for directory in &self.directories {
            argv.extend(["--tools".to_owned(), directory.display().to_string()]);
        }
        Part::start(&argv)
    }
}
