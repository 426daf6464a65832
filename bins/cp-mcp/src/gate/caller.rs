//! The client of the gate if it is in this process: one request at a time, in either version of the protocol.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use cp_common::program::VERSION;
use cp_common::wire::{Block, Receipt, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result, keys, signals};
use cp_mcp_wire::{
    Call, CallResult, Failure, Greeting, HANDSHAKES, Hints, Initialize, LEGACY, METHOD_NOT_FOUND, MODERN, Meta, Offer,
    OfferingServer, Page, Party, Tool,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message::{Outgoing, Reply, raw};
use super::{Gate, Server};
use crate::stdio::{Event, Post, WAITING};

/// How often a wait checks for a signal.
const POLL: Duration = Duration::from_millis(20);
/// The image types that providers accept.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The longest image that they accept, in characters of base64.
const LARGEST: usize = 5 << 20;
/// The schema of a tool without one.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;
/// The largest file next to the program that is hashed, in bytes: a script, and not its data.
const LARGEST_SCRIPT: u64 = 16 << 20;

/// The result of a request, or the failure that the server answers; the error is the gate's own.
type Answer = Result<Result<Box<RawValue>, Failure>>;

/// What the gate knows of the client in this process.
#[derive(Default)]
pub(super) struct Caller {
    /// True if the server is one of our own bridges, which requests approval itself.
    pub(super) is_bridge: bool,
    /// The id of the call that is being made.
    pub(super) call: Option<String>,
    /// The receipt of its ledger entry.
    pub(super) receipt: Option<Receipt>,
    /// The server's description of itself, after the handshake.
    greeting: Option<Greeting>,
    is_modern: bool,
    last: u64,
}

fn party() -> Party {
    Party { name: "cp-mcp".to_owned(), version: VERSION.to_owned() }
}

/// A gate whose client is in this process, and the events of its server.
pub(crate) struct OwnGate<S: Server, F> {
    gate: Gate<S, F>,
    inbox: Receiver<Event>,
}

impl<S: Server, F: FnMut(Post) -> Result<S>> OwnGate<S, F> {
    /// A gate before the server of this name, which the first request starts.
    pub(crate) fn new(name: &str, is_bridge: bool, start: F, context: &Context) -> Result<Self> {
        let (post, inbox) = sync_channel(WAITING);
        let mut gate = Gate::new(name, start, post, context)?;
        gate.caller = Some(Caller { is_bridge, is_modern: true, ..Caller::default() });
        Ok(Self { gate, inbox })
    }

    pub(crate) fn name(&self) -> &str {
        &self.gate.name
    }

    /// Starts the server, and returns what it offers.
    pub(crate) fn offers(&mut self) -> Result<(OfferingServer, Vec<Offer>)> {
        self.open()?;
        let page = match self.ask("tools/list", &self.params())? {
            Ok(page) => self.decode::<Page>(&page)?,
            Err(failure) if failure.code == METHOD_NOT_FOUND => Page::default(),
            Err(failure) => return Err(self.refused("tools/list", &failure)),
        };
        let tools = page.tools.into_iter().map(|tool| self.offer(tool)).collect();
        let described = serde_json::from_value::<OfferingServer>(self.gate.described_server());
        let mut server = described.map_err(|e| self.invalid(&e.to_string()))?;
        server.instructions = self.gate.greeting().and_then(|greeting| greeting.instructions.clone());
        server.left_out = self.gate.listing.as_ref().map(super::Listing::left_out).unwrap_or_default();
        Ok((server, tools))
    }

    fn offer(&self, Tool { name, description, input_schema, annotations }: Tool) -> Offer {
        let hints = Hints {
            idempotent: annotations.is_idempotent(),
            approve: self.gate.approval_rule(&name, annotations).is_some(),
            read_only: annotations.is_read_only(),
            timeout: None,
        };
        let none = || RawValue::from_string(NO_ARGUMENTS.to_owned()).unwrap_or_default();
        let input_schema = input_schema.unwrap_or_else(none);
        Offer { server: self.gate.name.clone(), name, description, input_schema, hints }
    }

    /// Finds out which version of the protocol the server supports. A server that ignores the request of the version
    /// without a handshake, or fails the handshake after it, is started again, because it may remember that request.
    fn open(&mut self) -> Result<()> {
        match self.ask("server/discover", &self.params()) {
            Ok(Ok(found)) => {
                // The version is known even if the rest of the result is not valid.
                let greeting = self.decode::<Greeting>(&found).unwrap_or_default();
                return self.greeted(Greeting { protocol_version: MODERN.to_owned(), ..greeting });
            }
            Ok(Err(failure)) => {
                let versions = failure.versions().filter(|found| !found.iter().any(|one| HANDSHAKES.contains(one)));
                if let Some(versions) = versions {
                    return Err(self.unsupported(&versions.join(", ")));
                }
            }
            Err(error) if error.is_fatal() || self.gate.server.is_none() && self.gate.starts == 0 => return Err(error),
            Err(_) => self.stop()?,
        }
        self.gate.caller.iter_mut().for_each(|caller| caller.is_modern = false);
        match self.shake_hands() {
            Err(error) if !error.is_fatal() && error.code() != Code::Timeout => {
                self.stop()?;
                self.shake_hands()
            }
            other => other,
        }
    }

    fn shake_hands(&mut self) -> Result<()> {
        let (capabilities, client_info) = (json!({}), party());
        let parameters = Initialize { protocol_version: LEGACY.to_owned(), capabilities, client_info };
        let answer = self.ask("initialize", &parameters)?.map_err(|failure| self.refused("initialize", &failure))?;
        let greeting: Greeting = self.decode(&answer)?;
        if !HANDSHAKES.contains(&greeting.protocol_version.as_str()) {
            return Err(self.unsupported(&greeting.protocol_version));
        }
        self.gate.send(Outgoing::request(None, "notifications/initialized", None))?;
        self.greeted(greeting)
    }

    fn greeted(&mut self, greeting: Greeting) -> Result<()> {
        if let Some(caller) = &mut self.gate.caller {
            caller.greeting = Some(greeting);
        }
        self.gate.note_server()
    }

    /// Records what follows on the ledger of a run.
    pub(crate) fn follow(&mut self, run: &str, ledger: &Path) -> Result<()> {
        self.gate.journal.follow(run, ledger);
        self.gate.note_server()
    }

    /// Makes a call of one of the server's tools. The first one starts the server, unless it was listed.
    pub(crate) fn call(&mut self, call: &ToolCall, tool: &str) -> Result<ToolResult> {
        if self.gate.greeting().is_none() {
            self.open()?;
        }
        let began = Instant::now();
        self.gate.caller.iter_mut().for_each(|caller| (caller.call, caller.receipt) = (Some(call.id.clone()), None));
        let answer = self.ask("tools/call", &Call { name: tool, arguments: Some(&call.input), meta: self.meta() });
        let receipt = self.gate.caller.as_mut().and_then(|caller| caller.receipt.take());
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (id, name) = (call.id.clone(), call.name.clone());
        let untrusted = vec!["/name".to_owned(), "/content".to_owned()];
        let result = ToolResult { id, name, duration_ms, receipt, untrusted, ..ToolResult::default() };
        match answer? {
            Ok(answer) => self.completed(self.decode(&answer)?, result),
            Err(failure) => Ok(ToolResult { content: failure.to_string(), is_error: true, ..result }),
        }
    }

    /// A result as the model gets it.
    fn completed(&self, answer: CallResult, mut result: ToolResult) -> Result<ToolResult> {
        if answer.is_input_required() {
            let message = format!("the server {} asks for something that only a person can answer", self.gate.name);
            return Err(Error::new(Code::HumanRequired, message)
                .with("rule", "mcp.input")
                .with("questions", answer.input_requests.unwrap_or_default()));
        }
        let is_shown = |media: &str, data: &str| IMAGES.contains(&media) && (1..=LARGEST).contains(&data.len());
        let images = answer.media().filter(|media| media.is_image && is_shown(&media.media_type, &media.data));
        result.images = images.map(|media| Block::image(&media.media_type, &media.data)).collect();
        result.untrusted.extend((!result.images.is_empty()).then(|| "/images".to_owned()));
        Ok(ToolResult { content: answer.text(is_shown), is_error: answer.is_error, ..result })
    }

    /// Makes a request, and waits for its answer. The gate limits the time.
    fn ask(&mut self, method: &'static str, params: &impl Serialize) -> Answer {
        let gate = &mut self.gate;
        let id = gate.caller.as_mut().map_or(0, |caller| {
            caller.last += 1;
            caller.last
        });
        let line = Outgoing::request(Some(&raw(&id)?), method, Some(&raw(params)?)).line;
        gate.receive_from_client(line.trim_end().as_bytes())?;
        loop {
            // It has no use for other messages of the server.
            let answer = gate.replies.drain(..).find_map(|reply| match reply {
                Reply::Answer(_, outcome) => Some(Ok(outcome)),
                Reply::Refusal(_, _, error) => Some(Err(error)),
                Reply::Passed(_) => None,
            });
            if let Some(answer) = answer {
                return answer;
            }
            signals::check()?;
            let left = gate.next_end().map_or(POLL, |end| end.saturating_duration_since(Instant::now()));
            match self.inbox.recv_timeout(left.min(POLL)) {
                Err(_) if left > POLL => {}
                event => drop(gate.handle(event.ok())?),
            }
        }
    }

    /// Stops the server, whose last events are dropped; the next request starts it again.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let Some(mut server) = self.gate.server.take() else { return Ok(()) };
        server.close()?;
        while !matches!(self.inbox.recv(), Ok(Event::ServerLeft(_)) | Err(_)) {}
        self.gate.handshake = None;
        Ok(())
    }

    /// Parameters that have only the metadata. Servers refuse one that is null.
    fn params(&self) -> Value {
        self.meta().map_or_else(|| json!({}), |meta| json!({ "_meta": meta }))
    }

    /// The metadata of a request without a handshake.
    fn meta(&self) -> Option<Meta> {
        let is_modern = self.gate.caller.as_ref().is_some_and(|caller| caller.is_modern);
        is_modern.then(|| Meta { version: MODERN.to_owned(), client: party(), capabilities: json!({}) })
    }

    fn decode<T: DeserializeOwned>(&self, result: &RawValue) -> Result<T> {
        serde_json::from_str(result.get()).map_err(|e| self.invalid(&e.to_string()))
    }

    fn invalid(&self, why: &str) -> Error {
        Error::new(Code::Server, format!("the response of the server {} is not valid: {why}", self.gate.name))
    }

    fn refused(&self, method: &str, failure: &Failure) -> Error {
        Error::new(Code::Server, format!("the server {} refused {method}: {failure}", self.gate.name))
    }

    fn unsupported(&self, versions: &str) -> Error {
        let message = format!("the server {} supports only the protocol versions {versions}", self.gate.name);
        Error::new(Code::Server, message).hint(format!("supported here: {MODERN}, {}", HANDSHAKES.join(", ")))
    }
}

impl<S: Server, F: FnMut(Post) -> Result<S>> Gate<S, F> {
    fn greeting(&self) -> Option<&Greeting> {
        self.caller.as_ref()?.greeting.as_ref()
    }

    /// The description of the server, with its version after a handshake of this process.
    fn described_server(&self) -> Value {
        let mut server = self.server.as_ref().map(Server::described).unwrap_or_default();
        if let Some(greeting) = self.greeting() {
            server["server_name"] = json!(greeting.server_info.name);
            server["server_version"] = json!(greeting.server_info.version);
            server["protocol"] = json!(greeting.protocol_version);
        }
        server
    }

    /// Records the server that was started. A client in this process waits for its version; a run has the hashes of its
    /// files.
    pub(super) fn note_server(&mut self) -> Result<()> {
        if self.server.is_none() || self.caller.is_some() && self.greeting().is_none() {
            return Ok(());
        }
        let mut server = self.described_server();
        if self.journal.is_of_run() {
            let words = server["command"].as_array().into_iter().flatten().filter_map(Value::as_str).enumerate();
            server["files"] = words.filter_map(|(at, word)| hash_file(at == 0, word)).collect();
        }
        self.journal.note("mcp.server", &json!({ "server": server })).map(drop)
    }
}

/// The path and hash of the file that a word of a command names.
fn hash_file(is_program: bool, word: &str) -> Option<(String, String)> {
    let path = Path::new(word);
    let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let is_hashed = is_program || meta.len() <= LARGEST_SCRIPT;
    is_hashed.then(|| Some((word.to_owned(), keys::hash(&std::fs::read(path).ok()?))))?
}
