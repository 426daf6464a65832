//! An executor of tool calls: cp-exec for commands and files, or cp-mcp for the tools of servers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::coprocess::{Child, ChildOptions, Stderr, cmd, find, unexpected};
use cp_common::wire::record::Kind;
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::Offers;
use serde_json::json;

use crate::state::step_log::StepLog;

/// cp-mcp stops its servers before it exits.
const OF_SERVERS: ChildOptions =
    ChildOptions { after_input: Duration::from_secs(3), after_term: Duration::from_secs(3), stderr: Stderr::Kept };

/// The coprocess that runs calls. The first call starts the first one.
pub(crate) struct Executor {
    program: &'static str,
    words: Vec<OsString>,
    options: ChildOptions,
    part: Option<Child>,
    /// True if the coprocess was started before its run.
    is_early: bool,
}

impl Executor {
    /// cp-exec for the tools in these directories.
    pub(crate) fn of_tools(directories: &[PathBuf], read_only: bool) -> Self {
        let mut words: Vec<OsString> = vec!["--closed".into()];
        words.extend(read_only.then(|| "--read-only".into()));
        // The script directory of a removed link may have been deleted since the run started.
        for directory in directories.iter().filter(|directory| directory.is_dir()) {
            words.extend(["--tools".into(), directory.into()]);
        }
        Self { program: "cp-exec", words, options: ChildOptions::DEFAULT, part: None, is_early: false }
    }

    /// cp-mcp for these servers.
    pub(crate) fn of_servers(servers: &[String]) -> Self {
        let mut words: Vec<OsString> = ["call", "--closed", "--format", "json"].map(OsString::from).into();
        words.extend(servers.iter().map(|server| format!("--mcp={server}").into()));
        Self { program: "cp-mcp", words, options: OF_SERVERS, part: None, is_early: false }
    }

    /// Starts the servers, and returns what they offer within a time limit.
    pub(crate) fn offers(&mut self, limit: Option<Duration>, context: &Context) -> Result<Offers> {
        let mut part = self.spawn(Some("--list".into()), context)?;
        if let Some(limit) = limit
            && !part.wait_line(limit)?
        {
            return Err(Error::new(Code::Timeout, "the MCP servers did not list their tools before --deadline").fatal());
        }
        let offers = part.receive(|name, record| match record.kind {
            Some(Kind::Item) => record.read(),
            _ => Err(unexpected(name, record)),
        })?;
        (self.part, self.is_early) = (Some(part), true);
        Ok(offers)
    }

    /// Starts a call. A new cp-exec inherits the descriptor of the run's lock, which stays locked while its commands
    /// exist.
    pub(crate) fn start(&mut self, call: &ToolCall, steps: &StepLog, context: &Context) -> Result<()> {
        let mut part = match self.part.take() {
            Some(part) => part,
            None if self.program == "cp-mcp" => self.spawn(None, context)?,
            None => steps.shared(|lock| self.spawn(Some(format!("--lock={lock}").into()), context))?,
        };
        if std::mem::take(&mut self.is_early) {
            part.send("run", &json!({ "run": context.options.run, "ledger": context.options.ledger }))?;
        }
        part.send(Kind::ToolCall.name(), call)?;
        self.part = Some(part);
        Ok(())
    }

    /// Waits for the result of the call; `None` after the time limit. A refusal is an error that is not fatal.
    pub(crate) fn result(&mut self, limit: Option<Duration>) -> Result<Option<ToolResult>> {
        let Some(part) = &mut self.part else { return Ok(None) };
        if let Some(limit) = limit
            && !part.wait_line(limit)?
        {
            return Ok(None);
        }
        part.receive(|name, record| match record.kind {
            Some(Kind::ToolResult) => record.read().map(Some),
            _ => Err(unexpected(name, record)),
        })
    }

    /// Stops the coprocess, and its tools.
    pub(crate) fn stop(&mut self) {
        self.part = None;
    }

    /// Ends the input of the coprocess, and waits until it exits.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.part.take().map_or(Ok(()), Child::finish)
    }

    fn spawn(&self, more: Option<OsString>, context: &Context) -> Result<Child> {
        let words = self.words.iter().cloned().chain(more).chain(context.handed_on());
        Child::start(self.program, &cmd(find(self.program)?, words), self.options)
    }
}
