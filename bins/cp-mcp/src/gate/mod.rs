//! The gate between a client and a server: calls are checked by policy and recorded, and secrets in results are
//! redacted.

mod calls;
mod client;
mod message;
mod server;
mod tools;

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use cp_common::coprocess::Output;
use cp_common::output::printable_line;
use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Context, Error, Result, signals};
use cp_mcp_wire::{self as wire, Greeting, Party};
use cp_redact::Redactor;
use cp_servers::{Launcher, Table, is_name};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::message::Id;
pub(crate) use self::message::{failed, failure_of, id_of, party, raw, refused};
pub(crate) use self::tools::Listing;
use crate::record::{Journal, Started};
use crate::stdio::{self, Event};

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

/// The ids of the gate's own requests are larger, unlike those of clients, and fit in 32 bits.
const FIRST_ID: u32 = 1 << 30;
/// The most lines that wait until a server reads them.
pub(crate) const QUEUE: usize = 256;
/// The most characters of a line that a warning shows.
const SHOWN: usize = 100;

/// Sends a line to a server in the order of the calls, without waiting until the server reads. False if too many wait.
pub(crate) type Outbox = Box<dyn Fn(String) -> bool>;

/// A server behind the gate.
pub(crate) struct Server {
    /// The lines for it have only members that the gate has read, because a server could interpret others differently.
    pub(crate) outbox: Outbox,
    /// Its lines.
    pub(crate) output: Output,
    /// Its description for the ledger.
    pub(crate) description: Value,
    /// Stops it after the end of its outbox, if it does not exit within its grace period. Returns the error for what is
    /// wrong with it, or for its exit.
    pub(crate) stop: Box<dyn FnOnce(Option<Error>) -> Error>,
}

impl Server {
    /// Closes its outbox, and stops it.
    pub(crate) fn close(self, why: Option<Error>) -> Error {
        // Without a reader, a full pipe does not block it.
        drop((self.outbox, self.output));
        (self.stop)(why)
    }
}

/// Runs the gate between the client and the server of this name until the client disconnects.
pub(crate) fn run(name: &str, has_limit: bool, server: Server, context: &mut Context) -> Result<()> {
    let mut gate = Gate::new(name, has_limit, Some(stdio::Client::new(LINE_LIMIT)), context)?;
    gate.server = Some(server);
    gate.note_server(None)?;
    let passed = gate.run(context);
    if let count @ 2.. = gate.noise {
        gate.warn(&format!("the server {name} wrote {count} lines that are not messages"), context);
    }
    // A signal must not interrupt the exit of the server.
    let _effect = signals::effect();
    gate.stop();
    passed
}

/// The state of the gate.
pub(crate) struct Gate {
    pub(crate) name: String,
    pub(crate) launcher: Launcher,
    pub(crate) table: Table,
    pub(crate) journal: Journal,
    /// The time limit of each request, also without one in the policy.
    limit: Option<Duration>,
    /// True if the client is in this process, and not at the standard streams.
    pub(crate) is_client: bool,
    /// True if the server is one of our own bridges, which requests approval itself.
    pub(crate) is_before_bridge: bool,
    /// `None` if the server has exited.
    pub(crate) server: Option<Server>,
    /// `None` if the tools must be listed before the next call.
    pub(crate) listing: Option<Listing>,
    /// `None` after the client at the standard streams has disconnected.
    input: Option<stdio::Client>,
    pub(crate) redactor: &'static Redactor,
    /// The lines of the server that are not messages.
    noise: u64,
    /// The client, as soon as the ledger names it.
    client: Option<Party>,
    /// The changes and refused tools that a warning has named.
    warned: HashSet<String>,
    /// When the start of the server began, until the handshake: what was asked before it takes of the same time.
    pub(crate) start: Option<Instant>,
    /// The requests without a response, by their ids.
    in_flight: BTreeMap<Id, Request>,
    /// The id of the last request of the gate itself: a number, because some servers read no other ids.
    own_id: u32,
    /// The answer to the request of the gate itself.
    answered: Option<Answer>,
    /// When the requests end, after the client has disconnected.
    deadline: Option<Instant>,
}

/// The result of a request. The error is the gate's own, or has the failure that the server answers.
pub(crate) type Answer = Result<Box<RawValue>>;

/// A request that has no response yet.
struct Request {
    id: Box<RawValue>,
    method: String,
    /// The end of its time, if that is limited.
    end: Option<Instant>,
    /// True for a request of the gate itself.
    is_own: bool,
    /// The call of a tool, which is on the ledger.
    call: Option<Started>,
}

impl Gate {
    pub(crate) fn new(name: &str, has_limit: bool, input: Option<stdio::Client>, context: &Context) -> Result<Self> {
        let launcher = Launcher::of(context)?;
        let table = launcher.table(name);
        Ok(Self {
            name: name.to_owned(),
            limit: has_limit.then(|| table.call_limit()),
            table,
            launcher,
            journal: Journal::new(context)?,
            is_client: input.is_none(),
            is_before_bridge: false,
            server: None,
            listing: None,
            input,
            redactor: Redactor::from_environment(),
            noise: 0,
            client: None,
            warned: HashSet::new(),
            start: None,
            in_flight: BTreeMap::new(),
            own_id: FIRST_ID,
            answered: None,
            deadline: None,
        })
    }

    fn run(&mut self, context: &mut Context) -> Result<()> {
        while self.deadline.is_none_or(|deadline| !self.in_flight.is_empty() && deadline > Instant::now()) {
            self.step(true, context)?;
        }
        Ok(())
    }

    /// Handles the next event, or the end of the time of a request.
    fn step(&mut self, reads_client: bool, context: &mut Context) -> Result<()> {
        // When the time of the first request is over.
        let until = self.in_flight.values().filter_map(|request| request.end).chain(self.deadline).min();
        let client = self.input.as_mut().filter(|_| reads_client);
        match stdio::next(client, self.server.as_mut().map(|server| &mut server.output), until, context)? {
            None => self.time_out(context),
            Some(Event::FromClient(line)) => self.receive_from_client(&line, context),
            Some(Event::ClientLeft) => {
                (self.input, self.deadline) = (None, Some(Instant::now() + self.table.call_limit()));
                Ok(())
            }
            Some(Event::FromServer(line)) => self.receive_from_server(&line, context),
            Some(Event::ServerLeft(why)) => self.server_exited(why, context),
        }
    }

    /// Makes a request of the gate itself, and waits for its answer within its time limit. The client is not read until
    /// then.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        params: &RawValue,
        call: Option<Started>,
        context: &mut Context,
    ) -> Answer {
        self.own_id += 1;
        while self.in_flight.contains_key(&self.own_id.to_string()) {
            self.own_id += 1;
        }
        let (id, method) = (raw(&self.own_id)?, method.to_owned());
        self.request(Request { id, method, end: None, is_own: true, call }, Some(params))?;
        loop {
            if let Some(answer) = self.answered.take() {
                return answer;
            }
            self.step(false, context)?;
        }
    }

    /// Sends a request, and waits for its response. A call that is not sent has failed.
    fn request(&mut self, mut request: Request, params: Option<&RawValue>) -> Result<()> {
        if let Err(error) = self.send(wire::request(Some(&request.id), &request.method, params.as_ref())) {
            return self.journal.end(request.call.as_ref(), true, None, None).and(Err(error));
        }
        let begun = if request.method == "initialize" { self.start.take() } else { None }.unwrap_or_else(Instant::now);
        request.end = self.limit_of(&request.method).map(|(_, limit)| begun + limit);
        self.in_flight.insert(id_of(&request.id), request);
        Ok(())
    }

    pub(crate) fn send(&self, line: String) -> Result<()> {
        let error = |what: &str| Error::new(Code::Server, format!("the server {} {what}", self.name));
        match &self.server {
            Some(server) if (server.outbox)(line) => Ok(()),
            Some(_) => Err(error("does not read its input")),
            None => Err(error("has exited").hint("connect to it again in the program that started cp-mcp")),
        }
    }

    /// Writes a line to the client. A client in this process reads only answers.
    fn write(&self, line: &str, context: &mut Context) -> Result<()> {
        if self.is_client { Ok(()) } else { stdio::write(line, context) }
    }

    /// Warns the client at the standard streams.
    fn warn(&self, warning: &str, context: &Context) {
        if !self.is_client {
            context.warn(warning);
        }
    }

    /// Stops the server.
    pub(crate) fn stop(&mut self) {
        let _ = self.server.take().map(|server| server.close(None));
    }

    /// The time limit of a request, and its key in the policy. A client at the standard streams of a process limits its
    /// own requests.
    fn limit_of(&self, method: &str) -> Option<(&'static str, Duration)> {
        match method {
            // The rest of the time is for the handshake.
            "server/discover" if self.is_client => Some(("start_timeout", self.table.start_limit() / 3)),
            "initialize" | "server/discover" | "tools/list" => Some(("start_timeout", self.table.start_limit())),
            "tools/call" if self.table.timeout.is_some() => Some(("timeout", self.table.call_limit())),
            _ => self.limit.map(|limit| ("timeout", limit)),
        }
    }

    /// Ends the requests whose time is over: each is cancelled at the server, and the client gets an error.
    fn time_out(&mut self, context: &mut Context) -> Result<()> {
        let now = Instant::now();
        let is_late = |_: &Id, request: &mut Request| request.end.is_some_and(|end| end <= now);
        for (_, request) in self.in_flight.extract_if(.., is_late).collect::<Vec<_>>() {
            // A handshake is never cancelled, and a server that has exited needs no notification.
            if request.method != "initialize" {
                let cancelled = json!({ "requestId": request.id, "reason": "timed out" });
                let _ = self.send(wire::request(None, "notifications/cancelled", Some(&cancelled)));
            }
            let (key, limit) = self.limit_of(&request.method).unwrap_or_default();
            let (name, seconds) = (&self.name, limit.as_secs_f64());
            let what = if key == "timeout" { String::new() } else { format!(" {}", request.method) };
            let message = format!("the server {name} did not answer{what} within {seconds} s");
            let hint = format!("{key} in [mcp.{name}] of the policy gives it more time");
            self.end(&request, Err(Error::new(Code::Timeout, message).hint(hint)), context)?;
        }
        Ok(())
    }

    /// Records the server that was started, with its version after a handshake of this process.
    pub(crate) fn note_server(&mut self, greeting: Option<&Greeting>) -> Result<()> {
        let mut server = self.server.as_ref().map(|server| server.description.clone()).unwrap_or_default();
        if let Some(greeting) = greeting {
            server["server_name"] = json!(greeting.server_info.name);
            server["server_version"] = json!(greeting.server_info.version);
            server["protocol"] = json!(greeting.protocol_version);
        }
        self.journal.note("mcp.server", &json!({ "server": server })).map(drop)
    }

    /// Counts the lines of the server that are not messages, and warns of the first.
    fn hear_noise(&mut self, line: &[u8], context: &Context) {
        let text: String = String::from_utf8_lossy(line).trim().chars().take(SHOWN).collect();
        self.noise += u64::from(!text.is_empty());
        if self.noise == 1 && !text.is_empty() {
            let text = printable_line(&text);
            context.warn(&format!("the server {} wrote a line that is not a message: {text}", self.name));
        }
    }
}
