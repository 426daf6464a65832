//! A server of `cp-mcp call`: the gate before it, and its client, which makes one request at a time in either version of
//! the protocol.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use cp_common::wire::{Block, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::{
    CallResult, Greeting, HANDSHAKES, Hints, LEGACY, MODERN, Meta, Offer, OfferingServer, Tool, request,
};
use cp_servers::{Spec, is_cp_mcp};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::gate::{Gate, Listing, failure_of, party, raw};
use crate::proxy;

/// The image types that providers accept.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The longest image that they accept, in characters of base64.
const LARGEST: usize = 5 << 20;
/// The schema of a tool without one.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

/// A server, which the first request starts, and the next one after its exit again.
pub(super) struct Server {
    pub(super) gate: Gate,
    spec: Spec,
    /// False after a handshake.
    is_modern: bool,
    /// The server's description of itself.
    greeting: Option<Greeting>,
}

impl Server {
    pub(super) fn new(spec: Spec, context: &Context) -> Result<Self> {
        let mut gate = Gate::new(&spec.name, true, None, context)?;
        gate.is_before_bridge = is_cp_mcp(&spec);
        Ok(Self { gate, spec, is_modern: true, greeting: None })
    }

    /// Starts the server, and returns what it offers.
    pub(super) fn offers(&mut self, context: &mut Context) -> Result<(OfferingServer, Vec<Offer>)> {
        self.open(context)?;
        let params = raw(&self.params()?)?;
        self.gate.list(Some(&params), context)?;
        let listing = self.gate.listing.as_ref();
        let offered = |listing: &Listing| (listing.left_out.clone(), listing.offered(self.gate.redactor));
        let (left_out, tools) = listing.map(offered).unwrap_or_default();
        let tools = tools.iter().map(|tool| Ok(self.offer(self.decode(tool)?))).collect::<Result<_>>()?;
        Ok((OfferingServer { name: self.spec.name.clone(), left_out, error: Value::Null }, tools))
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
    fn open(&mut self, context: &mut Context) -> Result<()> {
        self.gate.start = Some(Instant::now());
        self.start()?;
        if self.is_modern {
            match self.gate.ask("server/discover", &raw(&self.params()?)?, None, context) {
                Ok(found) => {
                    // The version is known even if the rest of the result is not valid.
                    let greeting = self.decode::<Greeting>(&found).unwrap_or_default();
                    return self.greeted(Greeting { protocol_version: MODERN.to_owned(), ..greeting });
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) if failure_of(&error).is_none() => self.gate.stop(),
                Err(_) => {}
            }
            self.is_modern = false;
        }
        match self.shake_hands(context) {
            Err(error) if !error.is_fatal() && error.code() != Code::Timeout => {
                self.gate.stop();
                self.shake_hands(context)
            }
            other => other,
        }
    }

    fn shake_hands(&mut self, context: &mut Context) -> Result<()> {
        self.start()?;
        let hello = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": party() });
        let answer = self.gate.ask("initialize", &raw(&hello)?, None, context)?;
        let greeting: Greeting = self.decode(&answer)?;
        if !HANDSHAKES.contains(&greeting.protocol_version.as_str()) {
            let (name, version) = (&self.gate.name, &greeting.protocol_version);
            let message = format!("the server {name} supports only the protocol version {version}");
            let hint = format!("supported here: {MODERN}, {}", HANDSHAKES.join(", "));
            return Err(Error::new(Code::Server, message).hint(hint));
        }
        self.gate.send(request(None, "notifications/initialized", None::<&Value>))?;
        self.greeted(greeting)
    }

    fn start(&mut self) -> Result<()> {
        if self.gate.server.is_none() {
            self.gate.server = Some(proxy::start(&self.spec, &self.gate.launcher)?);
        }
        Ok(())
    }

    fn greeted(&mut self, greeting: Greeting) -> Result<()> {
        let greeting = self.greeting.insert(greeting);
        self.gate.note_server(Some(greeting))
    }

    /// Records what follows on the ledger of a run.
    pub(super) fn follow(&mut self, run: &str, ledger: &Path) -> Result<()> {
        self.gate.journal.follow(run, ledger);
        if self.gate.server.is_none() { Ok(()) } else { self.gate.note_server(self.greeting.as_ref()) }
    }

    /// Makes a call of one of the server's tools.
    pub(super) fn call(&mut self, call: &ToolCall, tool: &str, context: &mut Context) -> Result<ToolResult> {
        if self.greeting.is_none() || self.gate.server.is_none() {
            self.open(context)?;
        }
        let began = Instant::now();
        self.gate.journal.call = Some(call.id.clone());
        let mut params = self.params()?;
        params.extend([("name", raw(&tool)?), ("arguments", call.input.clone())]);
        let params = raw(&params)?;
        let started = self.gate.begin(Some(&params), context)?;
        let receipt = Some(started.receipt.clone());
        let answer = self.gate.ask("tools/call", &params, Some(started), context);
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (id, name) = (call.id.clone(), call.name.clone());
        let untrusted = vec!["/name".to_owned(), "/content".to_owned()];
        let result = ToolResult { id, name, duration_ms, receipt, untrusted, ..ToolResult::default() };
        match answer.as_ref().map_err(failure_of) {
            Err(Some(failure)) => Ok(ToolResult { content: failure.to_string(), is_error: true, ..result }),
            _ => self.completed(self.decode(&answer?)?, result),
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
        let images = answer.media().filter(|media| media.kind == "image" && is_shown(&media.mime_type, &media.data));
        result.images = images.map(|media| Block::image(&media.mime_type, &media.data)).collect();
        result.untrusted.extend((!result.images.is_empty()).then(|| "/images".to_owned()));
        Ok(ToolResult { content: answer.text(is_shown), is_error: answer.is_error, ..result })
    }

    /// The parameters of each request: the metadata, unless there was a handshake.
    fn params(&self) -> Result<BTreeMap<&'static str, Box<RawValue>>> {
        let meta = Meta { version: MODERN.to_owned(), client: party(), capabilities: json!({}) };
        Ok(if self.is_modern { BTreeMap::from([("_meta", raw(&meta)?)]) } else { BTreeMap::new() })
    }

    fn decode<T: DeserializeOwned>(&self, result: &RawValue) -> Result<T> {
        let invalid = |e| format!("the response of the server {} is not valid: {e}", self.gate.name);
        serde_json::from_str(result.get()).map_err(|e| Error::new(Code::Server, invalid(e)))
    }
}
