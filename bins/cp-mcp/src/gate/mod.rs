//! The gate between a client and a server: calls are checked by policy and recorded, and secrets in results are
//! redacted.

mod caller;
mod calls;
mod client;
mod message;
mod server;
mod tools;

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use cp_common::home::Home;
use cp_common::keys::random;
use cp_common::output::printable_line;
use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Context, Error, Result, signals};
use cp_mcp_wire::{Failure, INVALID_REQUEST, Party};
use cp_redact::Redactor;
use cp_servers::{Launcher, Table, is_name};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::caller::Caller;
pub(crate) use self::caller::OwnGate;
use self::calls::{StartedCall, States};
use self::message::{Id, Members, Reply};
pub(crate) use self::message::{Outbox, Outgoing, failed, id_of, raw};
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

/// The most characters of a line that a warning shows.
const SHOWN: usize = 100;

/// A server behind the gate. Its messages are posted as events; its exit is the last of them.
pub(crate) trait Server {
    /// True if each request has a time limit, and not only the start.
    const LIMITS_REQUESTS: bool = false;

    /// Sends a message, and does not wait until the server reads it.
    fn send(&mut self, message: Outgoing) -> Result<()>;

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
    let (post, inbox) = stdio::open(LINE_LIMIT)?;
    stdio::begin(context)?;
    let mut gate = Gate::new(name, start, post, context)?;
    gate.start()?;
    let passed = gate.run(&inbox, context);
    // A signal must not interrupt the exit of the server, because its last line would be lost.
    let _effect = signals::effect();
    // Closing the inbox first releases the reader thread, for which the server would wait.
    drop(inbox);
    let closed = gate.server.as_mut().map_or(Ok(()), Server::close);
    gate.count_noise();
    gate.warnings.drain(..).for_each(|warning| context.warn(&warning));
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
    /// The lines for the client, and the warnings, that are not written yet.
    replies: Vec<Reply>,
    warnings: Vec<String>,
    /// The client if it is in this process, and not at the standard streams.
    caller: Option<Caller>,
    /// `None` if the server has exited; the next request starts it again.
    server: Option<S>,
    /// The number of its lines that are not messages.
    noise: u64,
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
    /// The requests without a response, by their ids.
    in_flight: BTreeMap<Id, Request>,
    /// The id of the last request of the gate itself: a number, because some servers read no other ids.
    own_id: u32,
    /// Lines of the client that wait for the response to a request of the gate itself.
    held: Vec<Vec<u8>>,
    /// When the requests end, after the client has disconnected.
    deadline: Option<Instant>,
}

/// A request that has no response yet.
struct Request {
    id: Box<RawValue>,
    method: String,
    /// The end of its time, if that is limited.
    end: Option<Instant>,
    origin: Origin,
}

/// Who makes a request, and why.
enum Origin {
    /// The client; a call of a tool is on the ledger.
    Client(Option<StartedCall>),
    /// The gate, which repeats the client's handshake for a new server process.
    Handshake,
    /// The gate, for the next page of tools: the members of each request, and the pages before it.
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
            replies: Vec::new(),
            warnings: Vec::new(),
            caller: None,
            server: None,
            noise: 0,
            starts: 0,
            handshake: None,
            client: None,
            listing: None,
            is_fresh: false,
            warned: HashSet::new(),
            states: States::new(),
            in_flight: BTreeMap::new(),
            own_id: FIRST_ID + u32::from(u16::from_ne_bytes(random()?)),
            held: Vec::new(),
            deadline: None,
        })
    }

    fn run(&mut self, inbox: &Receiver<Event>, context: &mut Context) -> Result<()> {
        loop {
            if self.deadline.is_some() && self.in_flight.is_empty() {
                return Ok(());
            }
            let event = stdio::next(inbox, self.next_end(), context)?;
            let goes_on = self.handle(event);
            self.warnings.drain(..).for_each(|warning| context.warn(&warning));
            self.replies.drain(..).try_for_each(|reply| stdio::write(reply.line().as_bytes(), context))?;
            if !goes_on? {
                return Ok(());
            }
        }
    }

    /// When the time of the first request is over.
    fn next_end(&self) -> Option<Instant> {
        self.in_flight.values().filter_map(|request| request.end).chain(self.deadline).min()
    }

    /// Handles an event, or the end of a time. False if it was the last.
    fn handle(&mut self, event: Option<Event>) -> Result<bool> {
        match event {
            Some(Event::FromClient(line)) => self.receive_from_client(&line)?,
            Some(Event::TooLong(number)) => {
                let failure = Failure::new(INVALID_REQUEST, format!("line {number} is too long"));
                self.answer(RawValue::NULL, Err(failure));
            }
            Some(Event::FromServer(line)) => self.receive_from_server(&line)?,
            Some(Event::ServerLeft(exit)) => self.server_exited(exit)?,
            Some(Event::ClientLeft(left)) => {
                left?;
                self.deadline = Some(Instant::now() + self.table.call_limit());
            }
            Some(Event::Ended(..)) => {}
            None if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => return Ok(false),
            None => self.time_out()?,
        }
        Ok(true)
    }

    /// The time limit of a request: for a call the policy's, if it has one, and for a handshake the start limit.
    fn limit_of(&self, method: &str) -> Option<Duration> {
        let has_limit = S::LIMITS_REQUESTS || method == "tools/call" && self.table.timeout.is_some();
        match method {
            // The rest of the time is for the handshake.
            "server/discover" if self.caller.is_some() => Some(self.table.start_limit() / 3),
            "initialize" | "server/discover" | "tools/list" => Some(self.table.start_limit()),
            _ => (has_limit || self.caller.is_some()).then(|| self.table.call_limit()),
        }
    }

    /// Ends the requests whose time is over: each is cancelled at the server, and the client gets an error.
    fn time_out(&mut self) -> Result<()> {
        let now = Instant::now();
        let is_late = |_: &Id, request: &mut Request| request.end.is_some_and(|end| end <= now);
        for (key, request) in self.in_flight.extract_if(.., is_late).collect::<Vec<_>>() {
            self.server.iter_mut().for_each(|server| server.abandon(&key));
            // A handshake is never cancelled, and a server that has exited needs no notification.
            if request.method != "initialize" {
                let cancelled = raw(&json!({ "requestId": request.id, "reason": "timed out" }))?;
                let _ = self.send(Outgoing::request(None, "notifications/cancelled", Some(&cancelled)));
            }
            let error = self.timed_out(&request.method);
            self.fail(&request, &error)?;
        }
        Ok(())
    }

    fn timed_out(&self, method: &str) -> Error {
        let (key, what, limit) = match method {
            "initialize" | "server/discover" | "tools/list" => {
                ("start_timeout", format!("answer {method}"), self.table.start_limit())
            }
            _ => ("timeout", "answer".to_owned(), self.table.call_limit()),
        };
        let (name, limit) = (&self.name, limit.as_secs_f64());
        Error::new(Code::Timeout, format!("the server {name} did not {what} within {limit} s"))
            .hint(format!("{key} in [mcp.{name}] of the policy gives it more time"))
    }

    /// Starts the server, and repeats the client's handshake if it has made one.
    fn start(&mut self) -> Result<()> {
        self.starts += 1;
        self.server = Some((self.start)(self.post.clone())?);
        self.note_server()?;
        match self.handshake.clone() {
            Some(params) => self.request("initialize", &params, Origin::Handshake),
            None => Ok(()),
        }
    }

    /// Sends a request of the gate itself.
    fn request(&mut self, method: &str, params: &RawValue, origin: Origin) -> Result<()> {
        self.own_id += 1;
        while self.in_flight.contains_key(&self.own_id.to_string()) {
            self.own_id += 1;
        }
        let id = raw(&self.own_id)?;
        self.send(Outgoing::request(Some(&id), method, Some(params)))?;
        self.await_response(id, method, origin);
        Ok(())
    }

    /// Waits for the response to a request.
    fn await_response(&mut self, id: Box<RawValue>, method: &str, origin: Origin) {
        let end = self.limit_of(method).map(|limit| Instant::now() + limit);
        self.in_flight.insert(id_of(&id), Request { id, method: method.to_owned(), end, origin });
    }

    /// True if a request of the gate itself has no response yet.
    fn is_busy(&self) -> bool {
        self.in_flight.values().any(|request| !matches!(request.origin, Origin::Client(_)))
    }

    fn send(&mut self, message: Outgoing) -> Result<()> {
        match &mut self.server {
            Some(server) => server.send(message),
            None => Err(Error::new(Code::Server, format!("the server {} has exited", self.name))),
        }
    }

    /// Answers a request of the client.
    fn answer(&mut self, id: &RawValue, outcome: Result<&RawValue, Failure>) {
        self.replies.push(Reply::Answer(id.to_owned(), outcome.map(ToOwned::to_owned)));
    }

    /// Refuses a request of the client.
    fn refuse(&mut self, id: &RawValue, method: &str, error: &Error) {
        let error = Error::from_value(&error.to_value());
        self.replies.push(Reply::Refusal(id.to_owned(), method.to_owned(), error));
    }

    /// Counts a line of the server that is not a message, and names the first one.
    fn hear_noise(&mut self, line: &[u8]) {
        let text: String = String::from_utf8_lossy(line).trim().chars().take(SHOWN).collect();
        if !text.is_empty() {
            self.noise += 1;
        }
        if self.noise == 1 && !text.is_empty() {
            let text = printable_line(&text);
            self.warnings.push(format!("the server {} wrote a line that is not a message: {text}", self.name));
        }
    }

    /// Warns of the number of such lines, at the end of the server.
    fn count_noise(&mut self) {
        if let count @ 2.. = std::mem::take(&mut self.noise) {
            self.warnings.push(format!("the server {} wrote {count} lines that are not messages", self.name));
        }
    }
}
