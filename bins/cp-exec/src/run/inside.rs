//! Clients inside the sandbox of a run, and the refusals of their programs.

use std::collections::HashMap;
use std::path::PathBuf;

use cp_common::wire::{DeniedStep, quoted};
use cp_common::{Code, Error, Result};
use serde_json::Value;

use super::provenance::{is_alive, lineage};
use crate::refusal::refuse;
use crate::sandbox::{ExecCall, ExecRequest, Process};

/// The most client requests of one run. All of them are recorded.
const REQUESTS: u64 = 10_000;
/// Above this number of clients, those that have ended are removed.
const CLIENTS: usize = 256;
/// The most refused steps that an answer lists.
pub(super) const NAMED: usize = 100;
/// The most characters of a command line in a message.
const SHOWN: usize = 120;

/// The clients of one run.
#[derive(Default)]
pub(super) struct NestedClients {
    /// The init of the run, after it has started.
    init: Option<Process>,
    clients: HashMap<Process, Client>,
    requests: u64,
}

/// A program that requested a command.
#[derive(Default)]
struct Client {
    /// The shell of its command line, until it was started.
    shell: Option<(PathBuf, Vec<String>)>,
    denied: Vec<DeniedStep>,
    error: Option<Value>,
}

impl NestedClients {
    /// Records the init of a run.
    pub(super) fn begin(&mut self, init: i32) {
        self.init = Process::find(init).map(|(init, _)| init);
    }

    /// True if a process belongs to the run. The pid of a client that has ended may belong to a process outside by
    /// now.
    pub(super) fn contains(&self, process: Process) -> bool {
        let found = Process::find(process.pid).filter(|(found, _)| *found == process);
        found.is_some_and(|(_, parent)| lineage(process, parent).any(|ancestor| Some(ancestor) == self.init))
    }

    /// Counts a request. Fails above the limit.
    pub(super) fn count_request(&mut self) -> Result<()> {
        if self.requests >= REQUESTS {
            return Err(refuse("requests", format!("a run may contain {REQUESTS} requests at most")));
        }
        self.requests += 1;
        Ok(())
    }

    /// Records that a client is about to run a command, with the shell of a command line.
    pub(super) fn accept(&mut self, process: Process, shell: Option<(PathBuf, Vec<String>)>) {
        if self.clients.len() > CLIENTS {
            self.clients.retain(|process, _| is_alive(process));
        }
        self.clients.insert(process, Client { shell, ..Client::default() });
    }

    /// True if a client, or its child, starts the shell of its command line.
    pub(super) fn starts_shell(&mut self, call: &ExecCall, request: &ExecRequest) -> bool {
        if self.clients.is_empty() {
            return false;
        }
        lineage(call.process, call.parent).take(2).any(|process| {
            let Some(client) = self.clients.get_mut(&process) else { return false };
            let expected = client.shell.take_if(|(file, argv)| *file == request.file.path && *argv == request.argv);
            expected.is_some()
        })
    }

    /// Records a refusal for each client that is an ancestor of the refused process.
    pub(super) fn refused(&mut self, call: &ExecCall, error: &Error, denied: &DeniedStep) {
        if self.clients.is_empty() {
            return;
        }
        for process in lineage(call.process, call.parent) {
            let Some(client) = self.clients.get_mut(&process) else { continue };
            if client.denied.len() < NAMED {
                client.denied.push(denied.clone());
            }
            if comes_first(client.error.as_ref().map(Error::from_value).as_ref(), denied) {
                client.error = Some(for_client(error, denied).to_value());
            }
        }
    }

    /// Takes the refusals of a client and the error to report.
    pub(super) fn take_refusals(&mut self, process: Process) -> (Vec<DeniedStep>, Option<Value>) {
        self.clients.remove(&process).map(|client| (client.denied, client.error)).unwrap_or_default()
    }
}

/// True if the error of a refusal replaces the known one. A step with a pending approval takes precedence over a
/// final refusal, because a person can act on it.
pub(super) fn comes_first(known: Option<&Error>, denied: &DeniedStep) -> bool {
    known.is_none_or(|known| known.code() != Code::HumanRequired && denied.approval.is_some())
}

/// The error for a client, without paths of the home.
fn for_client(error: &Error, denied: &DeniedStep) -> Error {
    let message = format!("{}: {}", command_text(&denied.argv), denied.reason);
    let plain =
        Error::new(error.code(), message).with("rule", denied.rule.clone()).with("reason", denied.reason.clone());
    match (&denied.approval, error.hint_text()) {
        (Some(id), _) => plain
            .with("id", id.clone())
            .hint(format!("run `cp-exec approve {id}` outside of the sandbox, then repeat the command")),
        (None, Some(hint)) => plain.hint(hint),
        (None, None) => plain,
    }
}

/// The words of a command as one line of a message.
pub(super) fn command_text(argv: &[String]) -> String {
    let line = argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
