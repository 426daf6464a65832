//! One message of the client: its HTTP request, and the response or the reason of a failure.

use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Error, Result};
use cp_http::client::Reply;
use cp_mcp_wire::{Failure, Greeting, Message, parse};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::link::{CHUNK, ClientMessage, Link, Session, failed, locked};
use crate::gate::id_of;

impl Link {
    /// Sends a message of the client, and passes on the response or the failure. True if the message was accepted.
    pub(super) fn exchange(&self, line: &[u8], request: &ClientMessage) -> bool {
        if request.method == "initialize" {
            *locked(&self.session) = Session::default();
        }
        let done = self.answered(line, request);
        // A cancelled request gets no response.
        if cp_http::is_ended() {
            return false;
        }
        done.map_err(|why| self.tell(request, &why)).is_ok()
    }

    fn answered(&self, line: &[u8], request: &ClientMessage) -> Result<(), Failure> {
        let session = locked(&self.session).clone();
        let reply = self.send(line, &session).map_err(|e| failed(&e))?;
        if !(200..300).contains(&reply.status) {
            return Err(Refused::read(reply).failure(request, self));
        }
        if request.method == "initialize" {
            locked(&self.session).id = reply.header("mcp-session-id");
        }
        self.taken(reply, request).map_err(|e| failed(&e))
    }

    /// Reads the response, as one message or as a stream.
    fn taken(&self, mut reply: Reply<'_>, request: &ClientMessage) -> Result<()> {
        let media = reply.header("content-type").unwrap_or_default();
        match media.split(';').next().unwrap_or_default().trim() {
            _ if request.id.is_none() => Ok(()),
            "application/json" => {
                let body = whole(&mut reply)?;
                let is_answered = self.message(&body, request)?;
                if is_answered {
                    Ok(())
                } else {
                    Err(Error::new(Code::Server, "the server's response has another id than the request"))
                }
            }
            "text/event-stream" => self.follow(reply, request),
            _ => Err(Error::new(
                Code::Server,
                format!("unexpected content type `{media}` in the response of the server"),
            )
            .hint("is that the URL of its MCP endpoint?")),
        }
    }

    /// Passes on a message. True if it has the response to the request.
    pub(super) fn message(&self, bytes: &[u8], request: &ClientMessage) -> Result<bool> {
        let is_answer = match parse(bytes) {
            Some(Message::Answer { id, outcome }) => {
                let is_answer = request.id == Some(id_of(id));
                if is_answer {
                    self.learn(request, outcome.ok());
                }
                is_answer
            }
            Some(Message::Request { .. } | Message::Notification { .. }) => false,
            None => return serde_json::from_slice::<&RawValue>(bytes).map(|_| false).map_err(|e| not_json(&e)),
        };
        self.pass(bytes)?;
        Ok(is_answer)
    }

    /// Reads the version of a handshake, which later requests repeat.
    fn learn(&self, request: &ClientMessage, result: Option<&RawValue>) {
        let Some(greeting) = result.filter(|_| request.method == "initialize") else { return };
        let greeting: Greeting = serde_json::from_str(greeting.get()).unwrap_or_default();
        locked(&self.session).version = Some(greeting.protocol_version).filter(|version| !version.is_empty());
    }
}

fn not_json(e: &serde_json::Error) -> Error {
    Error::new(Code::Server, format!("the response of the server is not JSON: {e}"))
}

/// The complete body, up to the limit of a line.
fn whole(reply: &mut Reply<'_>) -> Result<Vec<u8>> {
    let (mut body, mut buffer) = (Vec::new(), vec![0; CHUNK]);
    loop {
        match reply.read(&mut buffer)? {
            [] => return Ok(body),
            bytes if body.len() + bytes.len() > LINE_LIMIT => {
                let message = format!("the server's answer is longer than {} MiB", LINE_LIMIT >> 20);
                return Err(Error::new(Code::Server, message).with("bytes", body.len() + bytes.len()));
            }
            bytes => body.extend_from_slice(bytes),
        }
    }
}

/// The most bytes of an error body that are read.
const LONGEST: usize = 64 << 10;
/// The most characters of it that are shown.
const SHOWN: usize = 300;

/// A response with an error status.
pub(super) struct Refused {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
}

#[derive(Deserialize)]
struct Body {
    error: Failure,
}

impl Refused {
    /// Reads the response, up to a limit.
    pub(super) fn read(mut reply: Reply<'_>) -> Self {
        let (mut body, mut buffer) = (Vec::new(), [0; 4096]);
        while body.len() < LONGEST {
            match reply.read(&mut buffer) {
                Ok(bytes) if !bytes.is_empty() => body.extend_from_slice(bytes),
                Ok(_) | Err(_) => break,
            }
        }
        Self { status: reply.status, location: reply.header("location"), body }
    }

    /// The failure for the client.
    pub(super) fn failure(&self, request: &ClientMessage, link: &Link) -> Failure {
        match serde_json::from_slice::<Body>(&self.body) {
            Ok(body) if self.status != 401 => body.error,
            _ => failed(&self.error(request, link)),
        }
    }

    fn error(&self, request: &ClientMessage, link: &Link) -> Error {
        let (name, url, status) = (&link.name, locked(&link.url).clone(), self.status);
        let text = String::from_utf8_lossy(&self.body);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(SHOWN).collect();
        let text = if text.is_empty() || text.starts_with('<') { String::new() } else { format!(": {text}") };
        let error = |code| {
            Error::new(code, format!("the server {name} answers with the status {status}{text}")).with("status", status)
        };
        match status {
            401 if link.headers.list.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) => {
                error(Code::Auth).hint("the Authorization of --header-file is not accepted")
            }
            401 => error(Code::Auth).hint(format!(
                "give it a token: --header-file; or, if it wants a login (OAuth), log in once outside with `mcp-remote-client {url}` and \
                 run `cp-mcp proxy --server {name} -- /path/to/mcp-remote {url}` with network = \"host\", env = [\"MCP_REMOTE_CONFIG_DIR\"] \
                 and write = [\"that directory\"] in [mcp.{name}] of the policy"
            )),
            300..400 => {
                let to = self.location.as_deref().unwrap_or("nowhere");
                error(Code::Config).hint(format!("redirects to other servers are not followed; it names {to}"))
            }
            403 => error(Code::Forbidden),
            404 | 405 if request.method == "initialize" => {
                error(Code::NotFound).hint(
                    "name the URL of its MCP endpoint; the transport of 2024-11-05 (HTTP+SSE) is not spoken, but by `mcp-remote URL \
                     --transport sse-only` behind cp-mcp proxy",
                )
            }
            404 if locked(&link.session).id.is_some() => {
                error(Code::NotFound).hint("its session may have expired: start cp-mcp connect again")
            }
            404 | 405 => error(Code::NotFound),
            408 => error(Code::Timeout),
            429 => error(Code::RateLimited),
            400..500 => error(Code::Validation),
            _ => error(Code::Server),
        }
    }
}
