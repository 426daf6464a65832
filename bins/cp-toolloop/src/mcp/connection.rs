//! Requests and answers, in the protocol version of the server.

use std::time::{Duration, Instant};

use cp_common::program::VERSION;
use cp_common::{Code, Error, Result};
use cp_mcp_wire::{
    Call, CallResult, Failure, Greeting, HANDSHAKES, Initialize, LEGACY, METHOD_NOT_FOUND, MODERN, Meta, Page, Party,
    Tool, notification, request,
};
use cp_servers::{Launcher, Spec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use super::Outcome;
use super::pipe::{Arrived, Pipe};

/// How many pages of tools are read.
const PAGES: usize = 100;
/// The images that providers take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The longest that they take, in characters of base64.
const LARGEST: usize = 5 << 20;

/// A server that answers.
pub(super) struct Connection {
    name: String,
    client: &'static str,
    pipe: Pipe,
    era: Era,
    next: u64,
    /// What it said of itself.
    pub(super) greeting: Greeting,
    /// It did not read a call in the time that this had.
    is_stuck: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Modern,
    Legacy,
}

/// A call that was made and has no answer yet.
pub(super) struct Ticket {
    id: u64,
    began: Instant,
    until: Instant,
}

impl Connection {
    /// Starts a server and finds out which protocol it uses, until then. Some servers stay in the era of the first message, and some end
    /// at a message that they do not know, or never answer it: then it is started once more for the handshake.
    pub(super) fn open(spec: &Spec, launcher: &Launcher, until: Instant) -> Result<Self> {
        let mut connection = Self::probe(spec, launcher, until)?;
        connection.pipe.has_begun();
        Ok(connection)
    }

    /// Whether it will be there for so long.
    pub(super) fn lasts(&mut self, time: Duration) -> bool {
        !self.is_stuck && self.pipe.lasts(time)
    }

    /// Whether it is being asked something.
    pub(super) fn is_busy(&self) -> bool {
        self.pipe.is_busy()
    }

    fn probe(spec: &Spec, launcher: &Launcher, until: Instant) -> Result<Self> {
        let mut connection = Self::start(spec, launcher)?;
        // The rest is for the handshake.
        let third = Instant::now() + until.saturating_duration_since(Instant::now()) / 3;
        match connection.request("server/discover", &json!({ "_meta": connection.meta() }), third) {
            Ok(Some(Arrived { outcome: Ok(found), .. })) => {
                // It has answered; what it left out of that is left out.
                let greeting = connection.decoded(&found).unwrap_or_default();
                connection.greeting = Greeting { protocol_version: MODERN.to_owned(), ..greeting };
                return Ok(connection);
            }
            Ok(Some(Arrived { outcome: Err(failure), .. })) => {
                if let Some(versions) = failure.versions()
                    && !versions.iter().any(|version| HANDSHAKES.contains(version))
                {
                    return Err(connection.unsupported(&versions.join(", ")));
                }
            }
            Ok(None) | Err(_) => connection = Self::start(spec, launcher)?,
        }
        connection.era = Era::Legacy;
        match connection.shake_hands(until) {
            // It stays in the era of the first message that it got.
            Err(error) if error.code() == Code::Io => {
                connection = Self { era: Era::Legacy, ..Self::start(spec, launcher)? };
                connection.shake_hands(until)?;
            }
            other => other?,
        }
        Ok(connection)
    }

    fn start(spec: &Spec, launcher: &Launcher) -> Result<Self> {
        let pipe = Pipe::open(spec, launcher)?;
        let (name, client, greeting) = (spec.name.clone(), launcher.client, Greeting::default());
        Ok(Self { name, client, pipe, era: Era::Modern, next: 1, greeting, is_stuck: false })
    }

    fn shake_hands(&mut self, until: Instant) -> Result<()> {
        let asked =
            Initialize { protocol_version: LEGACY.to_owned(), capabilities: json!({}), client_info: self.party() };
        let Some(Arrived { outcome, .. }) = self.request("initialize", &asked, until)? else {
            return Err(self.late("did not start in time"));
        };
        let answer = outcome.map_err(|failure| self.refused("initialize", &failure))?;
        self.greeting = self.decoded(&answer)?;
        if !HANDSHAKES.contains(&self.greeting.protocol_version.as_str()) {
            return Err(self.unsupported(&self.greeting.protocol_version));
        }
        self.pipe.send(None, notification("notifications/initialized", &json!({})))
    }

    /// Every tool, over all pages.
    pub(super) fn tools(&mut self, until: Instant) -> Result<Vec<Tool>> {
        let (mut tools, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..PAGES {
            let mut params = json!({});
            if let Some(cursor) = cursor {
                params["cursor"] = cursor.into();
            }
            if let Some(meta) = self.meta() {
                params["_meta"] = json!(meta);
            }
            let Some(Arrived { outcome, .. }) = self.request("tools/list", &params, until)? else {
                return Err(self.late("did not list its tools in time"));
            };
            let page: Page = match outcome {
                Ok(page) => self.decoded(&page)?,
                Err(failure) if failure.code == METHOD_NOT_FOUND => return Ok(tools),
                Err(failure) => return Err(self.refused("tools/list", &failure)),
            };
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }

    /// Calls a tool, which has so long to answer.
    pub(super) fn call(&mut self, tool: &str, arguments: &RawValue, limit: Duration) -> Result<Ticket> {
        let (id, began) = (self.next_id(), Instant::now());
        let call = Call { name: tool, arguments: Some(arguments), meta: self.meta() };
        self.pipe.send(Some(id), request(id, "tools/call", &call))?;
        Ok(Ticket { id, began, until: began + limit })
    }

    /// Waits for what a call came to, and gives the time that it took.
    pub(super) fn answer(&mut self, ticket: &Ticket) -> Result<(Outcome, Duration)> {
        let Some(Arrived { at, outcome }) = self.pipe.answer(ticket.id, ticket.until)? else {
            self.is_stuck = self.pipe.has_unread();
            let cancelled = json!({"requestId": ticket.id, "reason": "timed out"});
            // One that has ended by now needs no word.
            let _ = self.pipe.send(None, notification("notifications/cancelled", &cancelled));
            return Ok((Outcome::TimedOut, ticket.until - ticket.began));
        };
        let outcome = match outcome {
            Ok(result) => outcome_of(self.decoded(&result)?),
            Err(failure) => Outcome::Answer { text: failure.to_string(), is_error: true },
        };
        Ok((outcome, at - ticket.began))
    }

    fn request(&mut self, method: &'static str, params: &impl Serialize, until: Instant) -> Result<Option<Arrived>> {
        let id = self.next_id();
        self.pipe.send(Some(id), request(id, method, params))?;
        self.pipe.answer(id, until)
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn party(&self) -> Party {
        Party { name: self.client.to_owned(), version: VERSION.to_owned() }
    }

    /// What a request says of us, where there is no session that knows it.
    fn meta(&self) -> Option<Meta> {
        let meta = || Meta { version: MODERN.to_owned(), client: self.party(), capabilities: json!({}) };
        (self.era == Era::Modern).then(meta)
    }

    fn decoded<T: DeserializeOwned>(&self, result: &RawValue) -> Result<T> {
        serde_json::from_str(result.get())
            .map_err(|e| Error::new(Code::Server, format!("the answer of the server {} is not valid: {e}", self.name)))
    }

    fn refused(&self, method: &str, failure: &Failure) -> Error {
        Error::new(Code::Server, format!("the server {} refused {method}: {failure}", self.name))
    }

    fn unsupported(&self, versions: &str) -> Error {
        let message = format!("the server {} supports only the protocol versions {versions}", self.name);
        Error::new(Code::Server, message).hint(format!("supported here: {MODERN}, {}", HANDSHAKES.join(", ")))
    }

    /// It took too long; what it wrote on standard error may say why.
    fn late(&self, what: &str) -> Error {
        let said = self.pipe.error_text();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Error::new(Code::Timeout, format!("the server {} {what}{said}", self.name))
    }
}

/// What an answer is to the model.
fn outcome_of(result: CallResult) -> Outcome {
    if result.is_input_required() {
        return Outcome::InputRequired(result.input_requests.unwrap_or_default());
    }
    let is_shown = |media: &str, data: &str| IMAGES.contains(&media) && (1..=LARGEST).contains(&data.len());
    let (text, is_error) = (result.text(is_shown), result.is_error);
    let shown = result.images().filter(|(media, data)| is_shown(media, data));
    let images: Vec<(String, String)> = shown.map(|(media, data)| (media.to_owned(), data.to_owned())).collect();
    if images.is_empty() { Outcome::Answer { text, is_error } } else { Outcome::Shown { text, images, is_error } }
}
