//! Requests and answers, in the protocol version of the server.

use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::content::Called;
use super::launch::Launcher;
use super::pipe::Pipe;
use super::{Offer, Outcome, Spec};

/// The version without sessions.
const MODERN: &str = "2026-07-28";
/// The last version with a handshake.
const LEGACY: &str = "2025-11-25";
/// How long a server has to start: some take seconds.
const START: Duration = Duration::from_secs(30);
/// How long it has to list its tools.
const LIST: Duration = Duration::from_secs(30);
/// How many pages of tools are read.
const PAGES: usize = 100;
/// JSON-RPC 2.0, section 5.1: there is no such method.
const METHOD_NOT_FOUND: i64 = -32601;

/// A server that answers.
pub(super) struct Connection {
    name: String,
    client: &'static str,
    pipe: Pipe,
    era: Era,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Modern,
    Legacy,
}

#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Failure>,
}

/// Why a server refused.
#[derive(Clone, Debug, Deserialize)]
struct Failure {
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

/// What an answer was.
enum Answered {
    Result(Box<RawValue>),
    Failure(Failure),
    TimedOut,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tools: Vec<Offer>,
    next_cursor: Option<String>,
}

impl Connection {
    /// Starts a server and finds out which protocol it uses. Some servers stay in the era of the first message, and some end at a
    /// message that they do not know: then it is started once more for the handshake.
    pub(super) fn open(spec: &Spec, launcher: &Launcher) -> Result<Self> {
        let mut connection = Self::probe(spec, launcher)?;
        connection.pipe.has_begun();
        Ok(connection)
    }

    /// Whether it will be there for so long.
    pub(super) fn lasts(&mut self, time: Duration) -> bool {
        self.pipe.lasts(time)
    }

    fn probe(spec: &Spec, launcher: &Launcher) -> Result<Self> {
        let mut connection = Self::start(spec, launcher)?;
        let until = Instant::now() + START;
        match connection.request("server/discover", json!({}), until) {
            Ok(Answered::Result(_)) => return Ok(connection),
            Ok(Answered::Failure(failure)) => {
                if let Some(versions) = failure.versions()
                    && !versions.contains(&LEGACY)
                {
                    return Err(Error::config(format!(
                        "the server {} supports only the protocol versions {}",
                        spec.name,
                        versions.join(", ")
                    )));
                }
            }
            Ok(Answered::TimedOut) | Err(_) => connection = Self::start(spec, launcher)?,
        }
        connection.era = Era::Legacy;
        if connection.shake_hands().is_err() {
            // It stays in the era of the first message that it got.
            connection = Self { era: Era::Legacy, ..Self::start(spec, launcher)? };
            connection.shake_hands()?;
        }
        Ok(connection)
    }

    fn start(spec: &Spec, launcher: &Launcher) -> Result<Self> {
        let pipe = Pipe::open(spec, launcher)?;
        Ok(Self { name: spec.name.clone(), client: launcher.client, pipe, era: Era::Modern, next: 1 })
    }

    fn shake_hands(&mut self) -> Result<()> {
        let client = json!({"name": self.client, "version": cp_common::program::VERSION});
        let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client});
        match self.request("initialize", params, Instant::now() + START)? {
            Answered::Result(_) => self.pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
            Answered::Failure(failure) => Err(self.refused("initialize", &failure)),
            Answered::TimedOut => {
                Err(Error::new(Code::Timeout, format!("the server {} did not start in time", self.name)))
            }
        }
    }

    /// Every tool, over all pages.
    pub(super) fn tools(&mut self) -> Result<Vec<Offer>> {
        let (mut tools, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let page = match self.request("tools/list", params, Instant::now() + LIST)? {
                Answered::Result(page) => page,
                Answered::Failure(failure) if failure.code == METHOD_NOT_FOUND => return Ok(tools),
                Answered::Failure(failure) => return Err(self.refused("tools/list", &failure)),
                Answered::TimedOut => {
                    return Err(Error::new(
                        Code::Timeout,
                        format!("the server {} did not list its tools in time", self.name),
                    ));
                }
            };
            let page: Page = self.decoded(&page)?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }

    /// Calls a tool.
    pub(super) fn call(&mut self, tool: &str, arguments: &RawValue, limit: Duration) -> Result<Outcome> {
        let id = self.next_id();
        let message = self.message("tools/call", json!({ "name": tool }), id);
        self.pipe.send_call(message, arguments)?;
        match self.answer(id, Instant::now() + limit)? {
            Answered::Result(result) => Ok(self.decoded::<Called>(&result)?.outcome()),
            Answered::Failure(failure) => {
                Ok(Outcome::Answer { text: format!("{} ({})", failure.message, failure.code), is_error: true })
            }
            Answered::TimedOut => {
                let params = json!({"requestId": id, "reason": "timed out"});
                self.pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))?;
                Ok(Outcome::TimedOut)
            }
        }
    }

    fn request(&mut self, method: &str, params: Value, until: Instant) -> Result<Answered> {
        let id = self.next_id();
        let message = self.message(method, params, id);
        self.pipe.send(&message)?;
        self.answer(id, until)
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn message(&self, method: &str, mut params: Value, id: u64) -> Value {
        if self.era == Era::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": self.client, "version": cp_common::program::VERSION},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// Waits for the answer to a request. Notifications and late answers pass by; a question of the server is answered.
    fn answer(&mut self, id: u64, until: Instant) -> Result<Answered> {
        loop {
            let Some(line) = self.pipe.receive(until)? else { return Ok(Answered::TimedOut) };
            let Ok(incoming) = serde_json::from_str::<Incoming<'_>>(line.get()) else { continue };
            if let Some(method) = &incoming.method {
                if let Some(id) = incoming.id {
                    let reply = reply_to(method, id);
                    self.pipe.send(&reply)?;
                }
                continue;
            }
            if incoming.id.is_none_or(|found| found.get() != id.to_string()) {
                continue;
            }
            return Ok(match (incoming.result, incoming.error) {
                (_, Some(failure)) => Answered::Failure(failure),
                (Some(result), None) => Answered::Result(result.to_owned()),
                (None, None) => Answered::Failure(Failure {
                    code: 0,
                    message: "the answer has no result".to_owned(),
                    data: Value::Null,
                }),
            });
        }
    }

    fn decoded<T: serde::de::DeserializeOwned>(&self, result: &RawValue) -> Result<T> {
        serde_json::from_str(result.get())
            .map_err(|e| Error::new(Code::Io, format!("the answer of the server {} is not valid: {e}", self.name)))
    }

    fn refused(&self, method: &str, failure: &Failure) -> Error {
        Error::new(
            Code::Server,
            format!("the server {} refused {method}: {} ({})", self.name, failure.message, failure.code),
        )
    }
}

impl Failure {
    /// The versions that a server of the current era lists.
    fn versions(&self) -> Option<Vec<&str>> {
        let listed = ["supported", "supportedVersions"].iter().find_map(|name| self.data.get(name)?.as_array())?;
        Some(listed.iter().filter_map(Value::as_str).collect())
    }
}

/// The answer to a request of the server: only `ping` is supported.
fn reply_to(method: &str, id: &RawValue) -> Value {
    let id: Value = serde_json::from_str(id.get()).unwrap_or_default();
    if method == "ping" {
        return json!({"jsonrpc": "2.0", "id": id, "result": {}});
    }
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": METHOD_NOT_FOUND, "message": "not supported"}})
}
