//! The coprocesses of a run: the model, cp-exec, MCP servers and the approver; or a recording that replaces them.

pub(crate) mod approver;
pub(crate) mod child;
pub(crate) mod model;
pub(crate) mod replay;

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

/// The coprocess of cp-exec.
pub(crate) struct Executor {
    directories: Vec<PathBuf>,
    read_only: bool,
    part: Option<Part>,
}

impl Executor {
    /// An executor for the tools in these directories. The first call starts the first coprocess.
    pub(crate) fn new(directories: Vec<PathBuf>, read_only: bool) -> Self {
        Self { directories, read_only, part: None }
    }

    /// Starts a call. A new coprocess inherits the descriptor of the run's lock, which stays locked while its commands exist.
    pub(crate) fn start(&mut self, call: &ToolCall, lock: Option<i32>, context: &Context) -> Result<()> {
        let mut part = match self.part.take() {
            Some(part) => part,
            None => self.start_part(lock, context)?,
        };
        part.send(Kind::ToolCall, call)?;
        self.part = Some(part);
        Ok(())
    }

    /// Waits for the result of the call; `None` after the time limit. A refusal is an error that is not fatal.
    pub(crate) fn result(&mut self, limit: Option<Duration>) -> Result<Option<ToolResult>> {
        let Some(part) = &mut self.part else { return Ok(None) };
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

    /// Stops the coprocess, and its tool.
    pub(crate) fn stop(&mut self) {
        self.part = None;
    }

    /// Ends the input of the coprocess, and waits until it exits.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.part.take().map_or(Ok(()), Part::finish)
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
