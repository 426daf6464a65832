//! The gate between a client and a server: calls are checked by policy and recorded, and secrets in results are
//! redacted.

mod caller;
mod calls;
mod client;
mod message;
mod server;
mod tools;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use cp_common::home::Home;
use cp_common::keys::random;
use cp_common::{Code, Context, Error, Result, signals};
use cp_mcp_wire::{Failure, INVALID_REQUEST, Party};
use cp_redact::Redactor;
use cp_servers::{Launcher, Table, is_name};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::caller::Caller;
pub(crate) use self::caller::OwnGate;
use self::calls::{StartedCall, States};
pub(crate) use self::message::id_of;
use self::message::{Id, LineReader, Members, message, refusal, response};
use self::tools::{Listing, Pages};
use crate::record::Journal;
use crate::stdio::{self, Event, Post};

/// The events that the gate records.
pub(crate) const EVENTS: &[&str] = &[
    "mcp.server",
    "mcp.session",
    "mcp.pinned",
    "mcp.call",
    "mcp.result",
    "mcp.refused",
    "approval.asked",
    "approval.spent",
];

/// Parses the name of a server.
pub(crate) fn server_name(text: &str) -> Result<String, &'static str> {
    if is_name(text) { Ok(text.to_owned()) } else { Err("a name is 1 to 64 letters, digits, _ and -") }
}

/// The most starts of a server that answers no request.
const STARTS: u32 = 3;

/// The ids of the gate's own requests are larger, unlike those of clients, and fit in 32 bits.
const FIRST_ID: u32 = 1 << 30;

/// A server behind the gate. Its messages are posted as events; its exit is the last of them.
pub(crate) trait Server {
    /// Sends a line, without its line feed, and does not wait until the server reads it.
    fn send(&mut self, line: &[u8]) -> Result<()>;

    /// True if each request has a time limit, and not only the start.
    fn limits_requests(&self) -> bool {
        false
    }

    /// Ends the wait for the response to a request, if there is one.
    fn abandon(&mut self, _id: &str) {}

    /// Ends its input, and stops it if it does not exit within its grace period.
    fn close(&mut self) -> Result<()>;

    /// Its description for the ledger.
    fn described(&self) -> Value;

    /// The error of its exit, with a hint if one is known.
    fn end(&mut self, exit: Result<()>) -> Error {
        exit.err().unwrap_or_else(|| Error::new(Code::Server, "the server has exited"))
    }
}

/// Runs the gate between the client and the server of this name until the client disconnects. A server that exits
/// earlier is started again with the next request.
pub(crate) fn run<S: Server>(name: &str, start: impl FnMut(Post) -> Result<S>, context: &mut Context) -> Result<()> {
    let (post, inbox) = stdio::open()?;
    stdio::begin(context)?;
    let mut gate = Gate::new(name, start, post, context)?;
    gate.start()?;
    let passed = gate.run(&inbox, context);
    // A signal must not interrupt the exit of the server, because its last line would be lost.
    let _effect = signals::effect();
    // Closing the inbox first releases the reader thread, for which the server would wait.
    drop(inbox);
    let closed = gate.server.as_mut().map_or(Ok(()), Server::close);
    passed.and(closed)
}

/// The state of the gate.
struct Gate<S, F> {
    name: String,
    start: F,
    post: Post,
    launcher: Launcher,
    table: Table,
    journal: Journal,
    redactor: Redactor,
    /// The home, and the directory of `.` in the policy.
    home: Home,
    base: Option<String>,
    /// The lines for the client, and the warnings, that were not written yet.
    written: Vec<String>,
    warnings: Vec<String>,
    /// The client if it is in this process, and not at the standard streams.
    caller: Option<Caller>,
    /// `None` if the server has exited; the next request starts it again.
    server: Option<S>,
    lines: LineReader,
    /// The number of starts since the last response.
    starts: u32,
    /// The parameters of the client's handshake, if its protocol version has one.
    handshake: Option<Box<RawValue>>,
    /// The client, as soon as the ledger names it.
    client: Option<Party>,
    /// `None` if the tools must be listed before the next call.
    listing: Option<Listing>,
    /// True if the listing was made for the held requests that are handled now.
    is_fresh: bool,
    /// The changes and refused tools that a warning has named.
    warned: HashSet<String>,
    states: States,
    /// The client's requests without a response, by their ids.
    pending: BTreeMap<Id, Pending>,
    /// The pending request of the gate itself, and when it was sent.
    own: Option<(Own, Instant)>,
    /// The id of the last request of the gate itself: a number, because some servers read no other ids.
    own_id: u32,
    /// Lines of the client that wait for the response to that request.
    held: VecDeque<Vec<u8>>,
    /// When the pending requests end, after the client has disconnected.
    deadline: Option<Instant>,
}

/// A request of the client that has no response yet.
struct Pending {
    id: Box<RawValue>,
    method: String,
    sent: Instant,
    call: Option<StartedCall>,
}

/// A request of the gate itself.
enum Own {
    /// The client's handshake, repeated for a new server process.
    Handshake,
    /// The next page of tools: the members of each request, and the pages before it.
    List(Members, Pages),
}

impl<S: Server, F: FnMut(Post) -> Result<S>> Gate<S, F> {
    fn new(name: &str, start: F, post: Post, context: &Context) -> Result<Self> {
        let launcher = Launcher::of(context)?;
        Ok(Self {
            name: name.to_owned(),
            start,
            post,
            table: launcher.table(name),
            launcher,
            journal: Journal::new(context)?,
            redactor: Redactor::from_environment(),
            home: context.home.clone(),
            base: context.base().ok().map(|base| base.display().to_string()),
            written: Vec::new(),
            warnings: Vec::new(),
            caller: None,
            server: None,
            starts: 0,
            handshake: None,
            client: None,
            listing: None,
            is_fresh: false,
            lines: LineReader::default(),
            warned: HashSet::new(),
            states: States::new(),
            pending: BTreeMap::new(),
            own: None,
            own_id: FIRST_ID + u32::from(u16::from_ne_bytes(random()?)),
            held: VecDeque::new(),
            deadline: None,
        })
    }

    fn run(&mut self, inbox: &Receiver<Event>, context: &mut Context) -> Result<()> {
        loop {
            let event = match inbox.try_recv() {
                Err(TryRecvError::Empty) => {
                    context.out.flush()?;
                    if self.deadline.is_some() && self.pending.is_empty() && self.own.is_none() {
                        return Ok(());
                    }
                    match self.next_end() {
                        None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                        Some(until) => inbox.recv_timeout(until.saturating_duration_since(Instant::now())),
                    }
                }
                event => event.map_err(|_| RecvTimeoutError::Disconnected),
            };
            let goes_on = self.handle(event);
            self.warnings.drain(..).for_each(|warning| context.warn(&warning));
            self.written.drain(..).try_for_each(|line| stdio::write(line.as_bytes(), context))?;
            if !goes_on? {
                return Ok(());
            }
        }
    }

    /// When the first of the pending requests is over.
    fn next_end(&self) -> Option<Instant> {
        let ends = self.pending.values().filter_map(|pending| self.end_of(pending));
        ends.chain(self.end_of_own()).chain(self.deadline).min()
    }

    /// Handles an event. False if it was the last.
    fn handle(&mut self, event: Result<Event, RecvTimeoutError>) -> Result<bool> {
        match event {
            Ok(Event::FromClient(line)) => self.receive_from_client(&line)?,
            Ok(Event::TooLong(number)) => {
                let failure = Failure::new(INVALID_REQUEST, format!("line {number} is too long"));
                self.write_to_client(&response(RawValue::NULL, &Err(failure)));
            }
            Ok(Event::FromServer(line)) => self.receive_from_server(&line)?,
            Ok(Event::ServerLeft(exit)) => self.server_exited(exit)?,
            Ok(Event::ClientLeft(left)) => {
                left?;
                self.deadline = Some(Instant::now() + self.table.call_limit());
            }
            Err(RecvTimeoutError::Timeout) if self.deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                self.time_out()?;
            }
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// The time limit of a request: for a call the policy's, if it has one, and for a handshake the start limit.
    fn limit_of(&self, method: &str) -> Option<Duration> {
        let has_limit = self.caller.is_some() || self.table.timeout.is_some();
        match method {
            // The rest of the time is for the handshake.
            "server/discover" if self.caller.is_some() => Some(self.table.start_limit() / 3),
            "initialize" | "server/discover" | "tools/list" => Some(self.table.start_limit()),
            "tools/call" if has_limit => Some(self.table.call_limit()),
            _ => self.server.as_ref().filter(|server| server.limits_requests()).map(|_| self.table.call_limit()),
        }
    }

    fn end_of(&self, pending: &Pending) -> Option<Instant> {
        self.limit_of(&pending.method).map(|limit| pending.sent + limit)
    }

    fn end_of_own(&self) -> Option<Instant> {
        let (own, sent) = self.own.as_ref()?;
        self.limit_of(own.method()).map(|limit| *sent + limit)
    }

    /// Ends the requests whose time is over: each is cancelled at the server, and the client gets an error.
    fn time_out(&mut self) -> Result<()> {
        let now = Instant::now();
        let is_late = |pending: &Pending| self.end_of(pending).is_some_and(|end| end <= now);
        let ids: Vec<Id> =
            self.pending.iter().filter(|(_, pending)| is_late(pending)).map(|(id, _)| id.clone()).collect();
        for pending in ids.iter().filter_map(|id| self.pending.remove(id)).collect::<Vec<_>>() {
            self.server.iter_mut().for_each(|server| server.abandon(&id_of(&pending.id)));
            let cancelled = json!({ "requestId": pending.id, "reason": "timed out" }).to_string();
            let cancelled = RawValue::from_string(cancelled).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
            // A handshake is never cancelled, and a server that has exited needs no notification.
            if pending.method != "initialize" {
                let _ = self.send(&message(None, "notifications/cancelled", Some(&cancelled)));
            }
            let error = self.timed_out(&pending.method);
            self.fail(&pending, &error)?;
        }
        match &self.own {
            Some((own, _)) if self.end_of_own().is_some_and(|end| end <= now) => {
                let error = self.timed_out(own.method());
                self.fail_own(&error)
            }
            _ => Ok(()),
        }
    }

    fn timed_out(&self, method: &str) -> Error {
        let (key, name, limit) = match method {
            "tools/call" => ("timeout", &self.name, self.table.call_limit()),
            _ => ("start_timeout", &self.name, self.table.start_limit()),
        };
        let limit = limit.as_secs_f64();
        let message = match method {
            "tools/call" => format!("the server {name} did not answer within {limit} s"),
            _ => format!("the server {name} did not answer {method} within {limit} s"),
        };
        Error::new(Code::Timeout, message).hint(format!("{key} in [mcp.{name}] of the policy gives it more time"))
    }

    /// Starts the server, and repeats the client's handshake if it has made one.
    fn start(&mut self) -> Result<()> {
        self.starts += 1;
        self.server = Some((self.start)(self.post.clone())?);
        self.note_server()?;
        self.lines = LineReader::default();
        if let Some(params) = self.handshake.clone() {
            self.request(&params, Own::Handshake)?;
        }
        Ok(())
    }

    /// Sends a request of the gate itself.
    fn request(&mut self, params: &RawValue, own: Own) -> Result<()> {
        self.own_id += 1;
        while self.pending.contains_key(&self.own_id.to_string()) {
            self.own_id += 1;
        }
        let id =
            RawValue::from_string(self.own_id.to_string()).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let method = own.method();
        self.own = Some((own, Instant::now()));
        self.send(&message(Some(&id), method, Some(params)))
    }

    fn send(&mut self, line: &str) -> Result<()> {
        match &mut self.server {
            Some(server) => server.send(line.trim_end().as_bytes()),
            None => Err(Error::new(Code::Server, format!("the server {} has exited", self.name))),
        }
    }

    /// Writes a line to the client. One in this process has no use for it.
    fn write_to_client(&mut self, line: &str) {
        if self.caller.is_none() {
            self.written.push(line.to_owned());
        }
    }

    /// Answers a request of the client.
    fn answer(&mut self, id: &RawValue, outcome: Result<&RawValue, Failure>) {
        match &mut self.caller {
            Some(caller) => caller.answer = Some(Ok(outcome.map(ToOwned::to_owned))),
            None => self.write_to_client(&response(id, &outcome)),
        }
    }

    /// Refuses a request of the client.
    fn refuse(&mut self, id: &RawValue, method: &str, error: &Error) {
        match &mut self.caller {
            Some(caller) => caller.answer = Some(Err(Error::from_value(&error.to_value()))),
            None => self.write_to_client(&refusal(id, method, error)),
        }
    }
}

impl Own {
    const fn method(&self) -> &'static str {
        match self {
            Self::Handshake => "initialize",
            Self::List(..) => "tools/list",
        }
    }
}
