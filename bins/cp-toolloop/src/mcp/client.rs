//! A client of the Model Context Protocol at the pipes of one `cp-mcp` process.

use std::collections::HashMap;
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use cp_common::coprocess::Child;
use cp_common::program::VERSION;
use cp_common::stream::lines::{Lines, Next};
use cp_common::{Code, Error, Result, signals};
use cp_mcp_wire::{
    Call, CallResult, Failure, Greeting, HANDSHAKES, Initialize, LEGACY, LeftOut, METHOD_NOT_FOUND, MODERN, Message,
    Meta, Page, Party, Tool, failure, notification, parse, request, result,
};
use cp_servers::{Launcher, Spec, not_fatal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use super::Outcome;

/// The most pages of tools that are read.
const PAGES: usize = 100;
/// The image types that providers accept.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The longest image that they accept, in characters of base64.
const LARGEST: usize = 5 << 20;
/// How often a wait checks for a signal.
const POLL: Duration = Duration::from_millis(20);
/// The most replies to requests of a server that wait to be sent; further requests are not answered.
const REPLIES: usize = 256;

/// A connection to a server, after its handshake.
pub(super) struct Client {
    name: String,
    party: Party,
    input: std::io::BufWriter<std::process::ChildStdin>,
    child: Child,
    incoming: Receiver<Incoming>,
    waiting_replies: Arc<AtomicUsize>,
    /// The requests whose response was not taken yet.
    pending: HashMap<u64, Option<Response>>,
    /// True if the server supports the protocol without a handshake.
    is_modern: bool,
    next: u64,
    /// The server's description of itself.
    pub(super) greeting: Greeting,
}

/// A line of the server.
enum Incoming {
    Response(u64, Response),
    /// The reply to a request of the server.
    Reply(String),
}

/// A response and its time of arrival.
struct Response {
    at: Instant,
    outcome: Result<Box<RawValue>, Failure>,
}

/// A call that was sent and has no response yet.
pub(super) struct Ticket {
    id: u64,
    began: Instant,
    until: Instant,
}

impl Client {
    /// Starts a server, and finds out which protocol version it supports, until this time. A server that fails or ignores the request of
    /// the version without a handshake is started again, because it may remember that request.
    pub(super) fn open(spec: &Spec, launcher: &Launcher, until: Instant) -> Result<Self> {
        let mut client = Self::start(spec, launcher)?;
        // The rest of the time is for the handshake.
        let third = Instant::now() + until.saturating_duration_since(Instant::now()) / 3;
        match client.request("server/discover", &json!({ "_meta": client.meta() }), third)? {
            Some(Ok(found)) => {
                // The version is known even if the rest of the result is not valid.
                let greeting = client.decode(&found).unwrap_or_default();
                client.greeting = Greeting { protocol_version: MODERN.to_owned(), ..greeting };
                return Ok(client);
            }
            Some(Err(failure)) => {
                if let Some(versions) = failure.versions()
                    && !versions.iter().any(|version| HANDSHAKES.contains(version))
                {
                    return Err(client.unsupported(&versions.join(", ")));
                }
            }
            None => client = Self::start(spec, launcher)?,
        }
        match client.shake_hands(until) {
            Err(error) if error.code() != Code::Timeout => {
                client = Self::start(spec, launcher)?;
                client.shake_hands(until)?;
            }
            other => other?,
        }
        Ok(client)
    }

    fn start(spec: &Spec, launcher: &Launcher) -> Result<Self> {
        let mut child = launcher.start_proxy(spec)?;
        let (input, output) = child.take_pipes().ok_or_else(|| Error::new(Code::Io, "the server has no pipes"))?;
        let (sender, incoming) = channel();
        let waiting_replies = Arc::<AtomicUsize>::default();
        let waiting = Arc::clone(&waiting_replies);
        let read = move || read(output, &sender, &waiting);
        Builder::new().name("mcp-read".to_owned()).spawn(read).map_err(|e| Error::io("starting a thread", e))?;
        Ok(Self {
            name: spec.name.clone(),
            party: Party { name: launcher.client.to_owned(), version: VERSION.to_owned() },
            input,
            child,
            incoming,
            waiting_replies,
            pending: HashMap::new(),
            is_modern: true,
            next: 1,
            greeting: Greeting::default(),
        })
    }

    /// True if the process has not exited.
    pub(super) fn is_running(&mut self) -> bool {
        self.child.is_running()
    }

    fn shake_hands(&mut self, until: Instant) -> Result<()> {
        self.is_modern = false;
        let (capabilities, client_info) = (json!({}), self.party.clone());
        let parameters = Initialize { protocol_version: LEGACY.to_owned(), capabilities, client_info };
        let Some(outcome) = self.request("initialize", &parameters, until)? else {
            return Err(self.late("did not start in time"));
        };
        let answer = outcome.map_err(|failure| self.refused("initialize", &failure))?;
        self.greeting = self.decode(&answer)?;
        if !HANDSHAKES.contains(&self.greeting.protocol_version.as_str()) {
            return Err(self.unsupported(&self.greeting.protocol_version));
        }
        self.write(notification("notifications/initialized", &json!({})))
    }

    /// Every tool of all pages, and the tools that cp-mcp leaves out.
    pub(super) fn tools(&mut self, until: Instant) -> Result<(Vec<Tool>, Vec<LeftOut>)> {
        let (mut tools, mut left_out, mut cursor) = (Vec::new(), Vec::new(), None::<String>);
        for _ in 0..PAGES {
            let mut params = json!({});
            if let Some(cursor) = cursor {
                params["cursor"] = cursor.into();
            }
            if let Some(meta) = self.meta() {
                params["_meta"] = json!(meta);
            }
            let Some(outcome) = self.request("tools/list", &params, until)? else {
                return Err(self.late("did not list its tools in time"));
            };
            let page: Page = match outcome {
                Ok(page) => self.decode(&page)?,
                Err(failure) if failure.code == METHOD_NOT_FOUND => break,
                Err(failure) => return Err(self.refused("tools/list", &failure)),
            };
            left_out.extend(page.left_out());
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok((tools, left_out))
    }

    /// Calls a tool, with a time limit for its response.
    pub(super) fn call(&mut self, tool: &str, arguments: &RawValue, limit: Duration) -> Result<Ticket> {
        let began = Instant::now();
        let call = Call { name: tool, arguments: Some(arguments), meta: self.meta() };
        let id = self.send("tools/call", &call)?;
        Ok(Ticket { id, began, until: began + limit })
    }

    /// Waits for the result of a call, and returns it with the time that the call took.
    pub(super) fn answer(&mut self, ticket: &Ticket) -> Result<(Outcome, Duration)> {
        let Some(Response { at, outcome }) = self.response(ticket.id, ticket.until)? else {
            let cancelled = json!({"requestId": ticket.id, "reason": "timed out"});
            // A server that has exited needs no notification.
            let _ = self.write(notification("notifications/cancelled", &cancelled));
            return Ok((Outcome::TimedOut, ticket.until - ticket.began));
        };
        let outcome = match outcome {
            Ok(result) => outcome_of(self.decode(&result)?),
            Err(failure) => Outcome::Answer { text: failure.to_string(), images: Vec::new(), is_error: true },
        };
        Ok((outcome, at - ticket.began))
    }

    fn request(
        &mut self,
        method: &'static str,
        params: &impl Serialize,
        until: Instant,
    ) -> Result<Option<Result<Box<RawValue>, Failure>>> {
        let id = self.send(method, params)?;
        Ok(self.response(id, until)?.map(|response| response.outcome))
    }

    fn send(&mut self, method: &'static str, params: &impl Serialize) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        self.pending.insert(id, None);
        self.write(request(id, method, params))?;
        Ok(id)
    }

    /// Writes a line. It never waits long, because cp-mcp always reads its input and a thread always reads its output.
    fn write(&mut self, line: serde_json::Result<String>) -> Result<()> {
        use std::io::Write as _;
        let line = line.map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let written = self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush());
        written.map_err(|_| not_fatal(&self.child.gone()))
    }

    /// The response to a request; `None` if it did not arrive until this time.
    fn response(&mut self, id: u64, until: Instant) -> Result<Option<Response>> {
        loop {
            signals::check()?;
            if let Some(Some(_)) = self.pending.get(&id) {
                // A response that arrived too late during another wait is too late here, too.
                return Ok(self.pending.remove(&id).flatten().filter(|response| response.at <= until));
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.incoming.recv_timeout(left.min(POLL)) {
                Ok(Incoming::Response(id, response)) => {
                    self.pending.entry(id).and_modify(|place| *place = Some(response));
                }
                Ok(Incoming::Reply(line)) => {
                    self.waiting_replies.fetch_sub(1, Ordering::Relaxed);
                    self.write(Ok(line))?;
                }
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.pending.remove(&id);
                    return Ok(None);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(not_fatal(&self.child.gone())),
            }
        }
    }

    /// The metadata of a request without a handshake.
    fn meta(&self) -> Option<Meta> {
        let meta = || Meta { version: MODERN.to_owned(), client: self.party.clone(), capabilities: json!({}) };
        self.is_modern.then(meta)
    }

    fn decode<T: DeserializeOwned>(&self, result: &RawValue) -> Result<T> {
        serde_json::from_str(result.get()).map_err(|e| {
            Error::new(Code::Server, format!("the response of the server {} is not valid: {e}", self.name))
        })
    }

    /// The error of a failure: that of cp-mcp if the failure has one.
    fn refused(&self, method: &str, failure: &Failure) -> Error {
        let is_error = failure.data.get("code").and_then(|code| Code::from_name(code.as_str()?)).is_some();
        if is_error {
            return Error::from_value(&failure.data);
        }
        Error::new(Code::Server, format!("the server {} refused {method}: {failure}", self.name))
    }

    fn unsupported(&self, versions: &str) -> Error {
        let message = format!("the server {} supports only the protocol versions {versions}", self.name);
        Error::new(Code::Server, message).hint(format!("supported here: {MODERN}, {}", HANDSHAKES.join(", ")))
    }

    /// The error of a missing response, with the last lines of standard error, which may have the reason.
    fn late(&self, what: &str) -> Error {
        let stderr = self.child.error_text();
        let stderr = if stderr.is_empty() { stderr } else { format!(": {stderr}") };
        Error::new(Code::Timeout, format!("the server {} {what}{stderr}", self.name))
    }
}

/// Reads all lines of the server. Notifications, and lines that are not messages, are ignored.
fn read(mut output: Lines<ChildStdout>, incoming: &Sender<Incoming>, waiting_replies: &AtomicUsize) {
    while let Ok(Next::Line(line)) = output.next(&mut || Ok(())) {
        let received = match parse(output.bytes(&line)) {
            Some(Message::Answer { id, outcome }) => id.get().parse().ok().map(|id| {
                Incoming::Response(id, Response { at: Instant::now(), outcome: outcome.map(ToOwned::to_owned) })
            }),
            Some(Message::Request { id, method, .. }) if waiting_replies.load(Ordering::Relaxed) < REPLIES => {
                waiting_replies.fetch_add(1, Ordering::Relaxed);
                let reply = match method.as_str() {
                    "ping" => result(id, &json!({})),
                    _ => failure(id, &Failure::new(METHOD_NOT_FOUND, "not supported")),
                };
                reply.ok().map(Incoming::Reply)
            }
            Some(Message::Request { .. } | Message::Notification { .. }) | None => None,
        };
        if received.is_some_and(|received| incoming.send(received).is_err()) {
            return;
        }
    }
}

/// A result as the model gets it.
fn outcome_of(result: CallResult) -> Outcome {
    if result.is_input_required() {
        return Outcome::InputRequired(result.input_requests.unwrap_or_default());
    }
    let is_shown = |media: &str, data: &str| IMAGES.contains(&media) && (1..=LARGEST).contains(&data.len());
    let shown = result.media().filter(|media| media.is_image && is_shown(&media.media_type, &media.data));
    let images = shown.map(|media| (media.media_type, media.data)).collect();
    Outcome::Answer { text: result.text(is_shown), images, is_error: result.is_error }
}
