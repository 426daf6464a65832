//! The coprocesses of a run: the model, cp-exec, MCP servers and the approver; or a recording that replaces them.

pub(crate) mod approver;
pub(crate) mod child;
pub(crate) mod model;
pub(crate) mod replay;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::coprocess::{self, Part, unexpected};
use cp_common::wire::record::Kind;
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Context, Result};

use self::approver::Approver;
use self::model::Model;
use crate::mcp::Servers;
use crate::state::plan::{Limits, Plan};

/// The coprocesses of a run. Each is started when it is first needed.
pub(crate) struct Parts {
    pub(crate) model: Model,
    pub(crate) executor: Executor,
    pub(crate) approver: Approver,
    servers: Option<Servers>,
}

impl Parts {
    /// The coprocesses of a run, with the servers that were started to list their tools.
    pub(crate) fn new(plan: &Plan, limits: &Limits, approver: Approver, servers: Option<Servers>) -> Self {
        let executor = Executor::new(plan.directories.clone(), plan.read_only);
        let model = Model::new(plan.model.clone(), plan.shared_budget(limits));
        Self { model, executor, approver, servers }
    }

    /// The MCP servers.
    pub(crate) fn servers(&mut self, context: &Context) -> Result<&mut Servers> {
        Ok(match &mut self.servers {
            Some(servers) => servers,
            none => none.insert(Servers::of(context)?),
        })
    }

    /// Ends the input of the model, and of cp-exec if it is not at work, and waits until they exit.
    pub(crate) fn rest(&mut self, executor: bool, context: &Context) {
        for left in [self.model.finish(), if executor { self.executor.finish() } else { Ok(()) }] {
            if let Err(error) = left {
                context.warn(error.message());
            }
        }
    }
}

/// The coprocesses of cp-exec, one for each parallel call, by slot. Each works on one call at a time, so that neither side blocks on a full pipe.
pub(crate) struct Executor {
    directories: Vec<PathBuf>,
    read_only: bool,
    slots: BTreeMap<usize, Part>,
}

impl Executor {
    /// An executor for the tools in these directories. The first call starts the first coprocess.
    pub(crate) fn new(directories: Vec<PathBuf>, read_only: bool) -> Self {
        Self { directories, read_only, slots: BTreeMap::new() }
    }

    /// Starts a call in a free slot. A new coprocess inherits the descriptor of the run's lock, which stays locked while its commands exist.
    pub(crate) fn start(&mut self, slot: usize, call: &ToolCall, lock: Option<i32>, context: &Context) -> Result<()> {
        let mut part = match self.slots.remove(&slot) {
            Some(part) => part,
            None => self.start_part(lock, context)?,
        };
        part.send(Kind::ToolCall, call)?;
        self.slots.insert(slot, part);
        Ok(())
    }

    /// Waits for the result of the call in a slot; `None` after the time limit. A refusal is an error that is not fatal.
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

    /// Stops the coprocess of a slot, and its tool.
    pub(crate) fn stop(&mut self, slot: usize) {
        self.slots.remove(&slot);
    }

    /// Ends the input of the coprocesses, and waits until they exit.
    pub(crate) fn finish(&mut self) -> Result<()> {
        std::mem::take(&mut self.slots).into_values().try_for_each(Part::finish)
    }

    fn start_part(&self, lock: Option<i32>, context: &Context) -> Result<Part> {
        let mut argv = vec![coprocess::find("cp-exec")?.into_os_string(), "--closed".into()];
        argv.extend(context.handed_on());
        argv.extend(self.read_only.then(|| "--read-only".into()));
        argv.extend(lock.map(|lock| format!("--lock={lock}").into()));
        // The script directory of a removed link may have been deleted since the run started.
        for directory in self.directories.iter().filter(|directory| directory.is_dir()) {
            argv.extend(["--tools".into(), directory.into()]);
        }
        Part::start(&argv)
    }
}
