//! Clients of a run: programs inside its sandbox that send messages to the supervisor. A connection carries one
//! message and one answer.
//!
//! All operations are non-blocking and bounded, so a slow client delays neither the run nor other clients.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cp_common::wire::{DeniedStep, Executable, Receipt, quoted};
use cp_common::{Code, Error};
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::provenance::{is_alive, lineage};
use crate::request::Form;
use crate::sandbox::{ExecCall, ExecRequest, Process};

/// The most open connections. One more closes the oldest.
const OPEN: usize = 16;
/// The most connections that are accepted before other events of the run are handled.
const ACCEPTED: usize = 64;
/// The longest message, in bytes.
const LONGEST: usize = 1 << 20;
/// The time after which a connection is closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message of a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Requests the decision about a command.
    Check(Form),
    /// Registers a command that the client is about to run, and requests the decision.
    Run(Form),
    /// Requests the programs that were refused since the client registered a command.
    Report,
    /// Registers a tool call of an agent, and requests the decision.
    Tool(Box<ToolCall>),
}

/// A tool call of an agent inside, as its hook reports it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub host: String,
    /// The host's id of the conversation.
    pub session: String,
    /// The host's id of the call.
    pub call: String,
    pub tool: String,
    /// True if the list of tools decides about the tool, because its input names neither a command nor a file.
    pub is_listed: bool,
    /// True if the tool may run without the list.
    pub by_default: bool,
    /// The data of the entry: before the call its input, and after the call its output.
    pub data: Value,
    /// True after the call.
    pub is_result: bool,
}

/// The answer to a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    ClientDecision(Box<ClientDecision>),
    Report {
        denied: Vec<DeniedStep>,
        /// The first refusal, or the first pending approval.
        error: Option<Value>,
    },
    /// The tool call is allowed and recorded.
    Tool,
    Failed(Value),
}

/// A decision about the command of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientDecision {
    /// The arguments with which it is executed.
    pub argv: Vec<String>,
    /// The command line, if it is one.
    pub line: Option<String>,
    pub cwd: String,
    /// The path to execute, as the client sees it.
    pub file: PathBuf,
    /// The file at this path.
    pub exe: Executable,
    /// allow, ask or deny.
    pub decision: String,
    pub rule: String,
    pub reason: String,
    pub hint: Option<String>,
    /// The hash of the policy.
    pub policy: String,
    /// The entry of the request, without the path of the ledger.
    pub receipt: Option<Receipt>,
}

/// The listening socket and the open connections.
pub(super) struct Clients {
    listener: UnixListener,
    open: VecDeque<Connection>,
}

struct Connection {
    stream: UnixStream,
    peer: Process,
    since: Instant,
    received: Vec<u8>,
    /// The part of the answer that is not sent yet.
    answer: Option<Vec<u8>>,
}

type Answerer<'a> = &'a mut dyn FnMut(Process, &[u8]) -> Vec<u8>;

impl Clients {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Self { listener, open: VecDeque::new() })
    }

    /// The descriptors to poll.
    pub(super) fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN);
        let open = self.open.iter().map(|connection| {
            let event = if connection.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(connection.stream.as_fd(), event)
        });
        std::iter::once(listener).chain(open)
    }

    /// Receives and answers messages without blocking.
    pub(super) fn serve(&mut self, answer: Answerer<'_>) {
        self.open.retain_mut(|connection| connection.since.elapsed() < PATIENCE && connection.advance(answer));
        for _ in 0..ACCEPTED {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let Some(mut connection) = Connection::new(stream) else { continue };
            if connection.advance(answer) {
                self.open.push_back(connection);
            }
            if self.open.len() > OPEN {
                self.open.pop_front();
            }
        }
    }
}

impl Connection {
    fn new(stream: UnixStream) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let pid = rustix::net::sockopt::socket_peercred(&stream).ok()?.pid;
        let (peer, _) = Process::find(pid.as_raw_nonzero().get())?;
        Some(Self { stream, peer, since: Instant::now(), received: Vec::new(), answer: None })
    }

    /// Receives a message and answers it. False after the answer or a failure.
    fn advance(&mut self, answer: Answerer<'_>) -> bool {
        loop {
            let done = match &mut self.answer {
                None => self.receive(answer),
                Some(left) => match self.stream.write(left) {
                    Ok(0) => return false,
                    Ok(written) => {
                        left.drain(..written);
                        if left.is_empty() {
                            return false;
                        }
                        Ok(())
                    }
                    Err(e) => Err(e),
                },
            };
            match done {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Receives available bytes. A message ends when the client shuts down its side.
    fn receive(&mut self, answer: Answerer<'_>) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        let length = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(&buffer[..length]);
        if self.received.len() > LONGEST || self.received.is_empty() {
            return Err(ErrorKind::InvalidData.into());
        }
        if length == 0 {
            self.answer = Some(answer(self.peer, &self.received));
        }
        Ok(())
    }
}

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
