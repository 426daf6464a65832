//! The connection to one server: each message of the client is an HTTP request, whose response is one message, or a
//! stream of them. Messages are sent in the order of the client; requests wait for their responses in parallel.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cp_common::coprocess::Output;
use cp_common::{Code, Error, Result, signals};
use cp_http::client::{Client, Reply, code_of};
use cp_http::sse::Parser;
use cp_mcp_wire::{Failure, Greeting, METHOD_NOT_FOUND, Message, failure, read};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::endpoint::Headers;
use crate::gate::{QUEUE, Server, failed, id_of, refused};
use crate::stdio::{Post, locked, post, workers};

/// The most requests that wait for a response at the same time.
pub(super) const MOST: usize = 64;
/// The time limit for ending a session.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most time for which the stream of server messages is read.
const LISTENING: Duration = Duration::from_hours(24 * 365);
/// The bytes of a body that are read at once.
const CHUNK: usize = 64 << 10;
/// The most characters of an error body that are shown.
const SHOWN: usize = 300;

/// The connection to one server.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) headers: Headers,
    pub(super) warn: Box<dyn Fn(&str) + Send + Sync>,
    pub(super) post: Arc<Post>,
    /// The headers of all requests after a handshake: the negotiated protocol version, and the server's session id.
    pub(super) session: Mutex<Vec<(String, String)>>,
}

/// The header of the server's session id.
const SESSION: &str = "Mcp-Session-Id";

/// A message of the client: its line, and the id and the method if it is a request.
struct Sent<'a> {
    line: &'a str,
    id: Option<&'a RawValue>,
    method: String,
}

impl<'a> Sent<'a> {
    fn of(line: &'a str) -> Self {
        let (id, method) = match read(line.as_bytes()) {
            Ok(Message::Request { id, method, .. }) => (id, method),
            Ok(Message::Answer { .. }) | Err(_) => (None, String::new()),
        };
        Self { line, id, method }
    }
}

impl Link {
    /// A connection, which the first message opens.
    pub(super) fn open(self, output: Output) -> Result<Server> {
        let description = json!({ "name": self.name, "url": self.url.split('?').next() });
        let own = Arc::new(self);
        let link = Arc::clone(&own);
        let requests = workers("request", MOST, 0, move |line: String| link.exchange(&Sent::of(&line)))?;
        let link = Arc::clone(&own);
        let queue = workers("to-server", 1, QUEUE, move |line: String| {
            let sent = Sent::of(&line);
            match (sent.method.as_str(), sent.id) {
                ("server/discover", Some(id)) => {
                    // With this code a client that looks for the version without a handshake shakes hands.
                    let why = "a server over HTTP is reached with a handshake (initialize)";
                    link.pass(failure(id, &Failure::new(METHOD_NOT_FOUND, why)).as_bytes());
                }
                // Others depend on these.
                ("initialize", _) | (_, None) => {
                    link.exchange(&sent);
                    if sent.method == "notifications/initialized" {
                        let link = Arc::clone(&link);
                        std::thread::spawn(move || link.listen());
                    }
                }
                _ => drop(requests.send(line)),
            }
        })?;
        let stop = move |why: Option<Error>| {
            if own.has_session() {
                // A server may not support this.
                let _ = own.client.within(FAREWELL).delete(&own.url, &own.headed());
            }
            why.unwrap_or_else(|| Error::new(Code::Io, "the connection has ended"))
        };
        let outbox = Box::new(move |line| queue.try_send(line).is_ok());
        Ok(Server { outbox, output, description, stop: Box::new(stop) })
    }

    /// Reads what the server sends by itself, if it has a stream for that, until the end of the connection.
    fn listen(&self) {
        let client = self.client.within(LISTENING);
        let Ok(reply) = client.get(&self.url, &self.headed(), u64::MAX) else { return };
        let media = reply.header("content-type").unwrap_or_default();
        if reply.status == 200 && media.starts_with("text/event-stream") {
            // The end of the connection is no failure of a request.
            let _ = self.receive(reply, &Sent::of(""));
        }
    }

    /// Sends a message of the client, and passes on the response or the failure.
    fn exchange(&self, sent: &Sent<'_>) {
        if sent.method == "initialize" {
            locked(&self.session).clear();
        }
        let Some(why) = self.send(sent).err().filter(|_| !signals::interrupted()) else { return };
        (self.warn)(&format!("the server {}: {}", self.name, self.headers.scrub(&failed(&why).message)));
        sent.id.into_iter().for_each(|id| self.pass(failure(id, &failed(&why)).as_bytes()));
    }

    /// The headers of a request.
    fn headed(&self) -> Vec<(String, String)> {
        let accepted = ("Accept".to_owned(), "application/json, text/event-stream".to_owned());
        [&*self.headers.list, &*locked(&self.session), &[accepted]].concat()
    }

    fn has_session(&self) -> bool {
        locked(&self.session).iter().any(|(name, _)| name == SESSION)
    }

    fn send(&self, sent: &Sent<'_>) -> Result<()> {
        let mut headers = self.headed();
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        let body = sent.line.trim_end().as_bytes();
        let reply = self.client.post(&self.url, &headers, body)?;
        if !(200..300).contains(&reply.status) {
            return Err(self.refused(reply, &sent.method));
        }
        if sent.method == "initialize" {
            locked(&self.session).extend(reply.header(SESSION).map(|id| (SESSION.to_owned(), id)));
        }
        if sent.id.is_none() { Ok(()) } else { self.receive(reply, sent) }
    }

    /// Reads the response to a request, as one message or as a stream.
    fn receive(&self, mut reply: Reply<'_>, request: &Sent<'_>) -> Result<()> {
        let error = |message: &str| Error::new(Code::Server, message);
        let media = reply.header("content-type").unwrap_or_default();
        match media.split(';').next().unwrap_or_default().trim() {
            "application/json" => {
                let mut body = Vec::new();
                reply.read_all(&mut body)?;
                let is_answered = self.message(&body, request)?;
                is_answered.then_some(()).ok_or_else(|| error("the server's response has another id than the request"))
            }
            "text/event-stream" => {
                let (mut parser, mut buffer, mut is_answered) = (Parser::new(), vec![0; CHUNK], false);
                while !is_answered {
                    let bytes = reply.read(&mut buffer)?;
                    if bytes.is_empty() {
                        return Err(Error::new(Code::Network, "the server broke off before it had answered"));
                    }
                    parser.push(bytes, |event| {
                        let is_empty = event.data.trim_ascii().is_empty();
                        let is_message = matches!(event.name.as_str(), "" | "message") && !is_empty;
                        is_answered |= is_message && self.message(&event.data, request)?;
                        Ok(())
                    })?;
                }
                reply.linger();
                Ok(())
            }
            _ => Err(error(&format!("unexpected content type `{media}` in the response of the server"))
                .hint("is that the URL of its MCP endpoint?")),
        }
    }

    /// Passes on a message. True if it has the response to the request. Later requests repeat the version of a
    /// handshake.
    fn message(&self, bytes: &[u8], request: &Sent<'_>) -> Result<bool> {
        let unreadable =
            |(_, why): (_, Failure)| Error::new(Code::Server, format!("the server's response: {}", why.message));
        let is_answer = match read(bytes).map_err(unreadable)? {
            Message::Answer { id, outcome } => {
                let is_answer = request.id.map(id_of) == Some(id_of(id));
                if let (true, "initialize", Ok(greeting)) = (is_answer, request.method.as_str(), outcome) {
                    let Greeting { protocol_version, .. } = serde_json::from_str(greeting.get()).unwrap_or_default();
                    let version = ("MCP-Protocol-Version".to_owned(), protocol_version);
                    locked(&self.session).extend(Some(version).filter(|(_, version)| !version.is_empty()));
                }
                is_answer
            }
            Message::Request { .. } => false,
        };
        self.pass(bytes);
        Ok(is_answer)
    }

    /// Passes a line to the client, with secrets redacted. A line feed in JSON is replaced by a space.
    fn pass(&self, line: &[u8]) {
        let line = self.headers.scrub(&String::from_utf8_lossy(line)).replace(['\n', '\r'], " ");
        post(&(line + "\n"), &self.post);
    }

    /// The failure of a response with an error status. An error of the protocol stays the server's own.
    fn refused(&self, mut reply: Reply<'_>, method: &str) -> Error {
        #[derive(Deserialize)]
        struct Body {
            error: Failure,
        }
        let (status, location) = (reply.status, reply.header("location"));
        let mut body = Vec::new();
        // The beginning of a body that breaks off is shown too.
        let _ = reply.read_all(&mut body);
        match serde_json::from_slice::<Body>(&body) {
            Ok(body) if status != 401 => return refused(&self.name, method, &body.error),
            _ => {}
        }
        let text = String::from_utf8_lossy(&body).split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(SHOWN).collect();
        let text = if text.is_empty() || text.starts_with('<') { String::new() } else { format!(": {text}") };
        let (name, url) = (&self.name, &self.url);
        let is_authorized = self.headers.list.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let is_expired = status == 404 && self.has_session();
        let hint = match status {
            300..=399 => location
                .map(|to| format!("redirects are not followed: connect to the endpoint itself; it names {to}"))
                .unwrap_or_default(),
            401 if is_authorized => "the Authorization of --header-file is not accepted".to_owned(),
            401 => format!(
                "give it a token: --header-file; or, if it wants a login (OAuth), log in once outside with \
                 `mcp-remote-client {url}` and run `cp-mcp proxy --server {name} -- /path/to/mcp-remote {url}` \
                 with network = \"host\", env = [\"MCP_REMOTE_CONFIG_DIR\"] and write = [\"that directory\"] \
                 in [mcp.{name}] of the policy"
            ),
            404 | 405 if method == "initialize" => {
                "name the URL of its MCP endpoint; the transport of 2024-11-05 (HTTP+SSE) is not spoken, \
                 but by `mcp-remote URL --transport sse-only` behind cp-mcp proxy"
                    .to_owned()
            }
            404 if is_expired => "its session may have expired: start cp-mcp connect again".to_owned(),
            _ => String::new(),
        };
        let error = Error::new(code_of(status), format!("the server {name} answers with the status {status}{text}"));
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        hint.into_iter().fold(error.with("status", status), Error::hint)
    }
}
