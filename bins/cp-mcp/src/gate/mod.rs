//! What passes between a client and another server: checked by policy, recorded, and without secrets.

mod calls;
mod clean;
mod client;
mod line;
mod pins;
mod server;
mod tools;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Instant;

use cp_common::keys::{hex, random};
use cp_common::{Code, Context, Error, Result, signals};
use cp_mcp_wire::{Failure, INVALID_REQUEST, Party};
use cp_redact::Redactor;
use cp_servers::{Launcher, Table};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::calls::{Made, States};
use self::clean::Members;
use self::line::{Id, answer, message, refusal};
use self::tools::{Listing, Pages};
use crate::inbox::{self, Event, Post};
use crate::record::Journal;
use crate::said;

/// What the gate puts on the ledger.
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

/// How often a server is started again before it has answered a request.
const STARTS: u32 = 3;

/// A server behind the gate. What it says is posted as events; when it has left, that is the last of them.
pub(crate) trait Server {
    /// Sends it a line, without its line feed. Never waits for it to read.
    fn send(&mut self, line: &[u8]) -> Result<()>;

    /// Whether it ends calls that take too long by itself.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Tells it that nothing more comes, and lets it leave within its grace.
    fn close(&mut self) -> Result<()>;

    /// What it is, for the ledger.
    fn described(&self) -> Value;

    /// What its end means and what helps, given what it left with.
    fn end(&mut self, left: Result<()>) -> Error {
        left.err().unwrap_or_else(|| Error::new(Code::Server, "the server has left"))
    }
}

/// Stands between the client and the server of this name until the client leaves. A server that leaves before is started again with the
/// next request.
pub(crate) fn pass<S: Server>(
    name: &str,
    start: impl FnMut(Post, &Context) -> Result<S>,
    context: &mut Context,
) -> Result<()> {
    let launcher = Launcher::of(context)?;
    let (table, journal) = (launcher.table(name)?, Journal::new(context)?);
    let (post, inbox) = inbox::open()?;
    said::begin(context)?;
    let mut gate = Gate {
        name,
        start,
        post,
        launcher,
        table,
        journal,
        redactor: Redactor::from_environment(),
        context,
        server: None,
        starts: 0,
        handshake: None,
        client: None,
        listing: None,
        is_fresh: false,
        told: HashSet::new(),
        states: States::new(),
        pending: BTreeMap::new(),
        own: None,
        prefix: format!("cp-{}-", hex(&random::<8>()?)),
        next: 0,
        held: VecDeque::new(),
        left: None,
    };
    gate.start()?;
    let passed = gate.run(&inbox);
    // A signal does not cut this short, or there would be another last line.
    let _effect = signals::effect();
    // A thread that waits to post is let go first, or the server would wait for it.
    drop(inbox);
    let closed = gate.server.as_mut().map_or(Ok(()), Server::close);
    passed.and(closed)
}

/// What stands between.
struct Gate<'a, S, F> {
    name: &'a str,
    start: F,
    post: Post,
    launcher: Launcher,
    table: Table,
    journal: Journal,
    redactor: Redactor,
    context: &'a mut Context,
    /// None: it has left, and is started with the next request.
    server: Option<S>,
    /// How often it was started since it answered last.
    starts: u32,
    /// How the client began, where its era has a handshake.
    handshake: Option<Box<RawValue>>,
    /// Who the client is, once the ledger has it.
    client: Option<Party>,
    /// None: the server has to be asked before a tool is called.
    listing: Option<Listing>,
    /// Whether that came for the requests that go on now.
    is_fresh: bool,
    /// The changes that the person was told of.
    told: HashSet<String>,
    states: States,
    /// The client's requests without an answer, by their ids.
    pending: BTreeMap<Id, Pending>,
    /// The request of our own that is under way.
    own: Option<Own>,
    prefix: String,
    next: u64,
    /// Lines of the client that wait until that is done.
    held: VecDeque<Vec<u8>>,
    /// When the client left; what it asked before is still answered.
    left: Option<Instant>,
}

/// A request of the client that has no answer yet.
struct Pending {
    id: Box<RawValue>,
    method: String,
    call: Option<Made>,
}

/// What we ask ourselves.
enum Own {
    /// The client's handshake, once more.
    Handshake,
    /// The next page of tools, with what each request says besides, and those before it.
    List(Members, Pages),
}

impl<S: Server, F: FnMut(Post, &Context) -> Result<S>> Gate<'_, S, F> {
    fn run(&mut self, inbox: &Receiver<Event>) -> Result<()> {
        loop {
            let event = match inbox.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.context.out.flush()?;
                    if self.left.is_some() && self.pending.is_empty() && self.own.is_none() {
                        return Ok(());
                    }
                    let ends = self.pending.values().filter_map(|pending| self.end_of(pending)).chain(self.left).min();
                    match ends {
                        None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                        Some(until) => inbox.recv_timeout(until.saturating_duration_since(Instant::now())),
                    }
                }
                event => event.map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::FromClient(line)) => self.client_says(&line)?,
                Ok(Event::TooLong(number)) => {
                    let failure = Failure::new(INVALID_REQUEST, format!("line {number} is too long"));
                    self.say(&answer(RawValue::NULL, &Err(failure)))?;
                }
                Ok(Event::FromServer(line)) => self.server_says(&line)?,
                Ok(Event::ServerLeft(left)) => self.server_left(left)?,
                Ok(Event::ClientLeft(left)) => {
                    left?;
                    self.left = Some(Instant::now() + self.table.call_limit());
                }
                Err(RecvTimeoutError::Timeout) if self.left.is_none_or(|left| Instant::now() < left) => {
                    self.give_up()?;
                }
                Err(_) => return Ok(()),
            }
        }
    }

    /// When a call has had its time, where the policy gives it one.
    fn end_of(&self, pending: &Pending) -> Option<Instant> {
        let keeps_time = self.server.as_ref().is_some_and(Server::keeps_time);
        let made = self.table.timeout.and(pending.call.as_ref()).filter(|_| !keeps_time);
        made.map(|made| made.began + self.table.call_limit())
    }

    /// Ends the calls that have had their time: they are cancelled at the server, and the client gets a failed result.
    fn give_up(&mut self) -> Result<()> {
        let now = Instant::now();
        let late = |pending: &Pending| self.end_of(pending).is_some_and(|end| end <= now);
        let ids: Vec<Id> = self.pending.iter().filter(|(_, pending)| late(pending)).map(|(id, _)| id.clone()).collect();
        for Pending { id, method, call } in ids.iter().filter_map(|id| self.pending.remove(id)).collect::<Vec<_>>() {
            let cancelled = json!({ "requestId": id, "reason": "timed out" }).to_string();
            let cancelled = RawValue::from_string(cancelled).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
            // One that has left needs no word.
            let _ = self.send(&message(None, "notifications/cancelled", Some(&cancelled)));
            let limit = self.table.call_limit().as_secs_f64();
            let error = Error::new(Code::Timeout, format!("the server {} did not answer within {limit} s", self.name))
                .hint(format!("timeout in [mcp.{}] of the policy gives it more time", self.name));
            self.concluded(call.as_ref(), true, None)?;
            self.say(&refusal(&id, &method, &error))?;
        }
        Ok(())
    }

    /// Starts the server, with the handshake where the client has made one.
    fn start(&mut self) -> Result<()> {
        self.starts += 1;
        let server = (self.start)(self.post.clone(), self.context)?;
        self.journal.note("mcp.server", &json!({ "server": server.described() }))?;
        self.server = Some(server);
        if let Some(params) = self.handshake.clone() {
            self.ask("initialize", &params, Own::Handshake)?;
        }
        Ok(())
    }

    /// Asks the server something ourselves.
    fn ask(&mut self, method: &str, params: &RawValue, own: Own) -> Result<()> {
        self.next += 1;
        let id = format!("\"{}{}\"", self.prefix, self.next);
        let id = RawValue::from_string(id).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        self.own = Some(own);
        self.send(&message(Some(&id), method, Some(params)))
    }

    fn send(&mut self, line: &str) -> Result<()> {
        match &mut self.server {
            Some(server) => server.send(line.trim_end().as_bytes()),
            None => Err(Error::new(Code::Server, format!("the server {} has left", self.name))),
        }
    }

    /// A line for the client.
    fn say(&mut self, line: &str) -> Result<()> {
        said::say(line.as_bytes(), self.context)
    }
}
