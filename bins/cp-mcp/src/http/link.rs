//! The connection to one server: sending, and streams of messages, which are the response to a request, or messages of
//! the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cp_common::output::line_to_stderr;
use cp_common::{Code, Error, Result};
use cp_http::client::{Client, Reply};
use cp_http::sse::Parser;
use cp_http::{Stop, stopped_by};
use cp_mcp_wire::{Failure, INTERNAL_ERROR, Message, failure, parse};
use serde_json::value::RawValue;

use super::endpoint::Headers;
use crate::gate::id_of;
use crate::stdio::{Event, Post};

/// The most redirects that are followed.
const REDIRECTS: usize = 3;
/// The media types of a response.
pub(super) const ACCEPTED: &str = "application/json, text/event-stream";
/// The bytes of a body that are read at once.
pub(super) const CHUNK: usize = 64 << 10;

/// The most time for which the stream of server messages is read.
const LISTENING: Duration = Duration::from_hours(24 * 365);

/// A message of the client, as far as the transport reads it.
#[derive(Default)]
pub(super) struct ClientMessage {
    /// The id of a request, as JSON.
    pub(super) id: Option<String>,
    /// The method; empty in a response.
    pub(super) method: String,
}

impl ClientMessage {
    pub(super) fn of(line: &[u8]) -> Self {
        match parse(line) {
            Some(Message::Request { id, method, .. }) => Self { id: Some(id_of(id)), method },
            Some(Message::Notification { method, .. }) => Self { id: None, method },
            Some(Message::Answer { .. }) | None => Self::default(),
        }
    }
}

/// The connection to one server.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) client: Client,
    /// The URL, which a redirect changes.
    pub(super) url: Mutex<String>,
    pub(super) headers: Headers,
    pub(super) is_quiet: bool,
    pub(super) post: Post,
    pub(super) session: Mutex<Session>,
    /// The stop signals of active requests.
    pub(super) under_way: Mutex<HashMap<String, Stop>>,
    /// The stop signal of the stream of server messages.
    pub(super) listening: Mutex<Stop>,
}

/// The state between requests, after a handshake.
#[derive(Clone, Default)]
pub(super) struct Session {
    /// The negotiated protocol version.
    pub(super) version: Option<String>,
    /// The session id of the server.
    pub(super) id: Option<String>,
}

/// The content of a lock, which a panic never leaves half changed.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Sends a message, and follows redirects on the same server.
    pub(super) fn send(&self, line: &[u8], session: &Session) -> Result<Reply<'_>> {
        let mut headers = self.headed(session, ACCEPTED);
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        for _ in 0..REDIRECTS {
            let url = locked(&self.url).clone();
            let reply = self.client.post(&url, &headers, line)?;
            let moved = reply.header("location").filter(|_| matches!(reply.status, 307 | 308));
            match moved.and_then(|to| same_server(&url, &to)) {
                Some(to) => *locked(&self.url) = to,
                None => return Ok(reply),
            }
        }
        Err(Error::config(format!("the server {} has too many redirects", self.name)))
    }

    /// The headers of a request.
    pub(super) fn headed(&self, session: &Session, accepted: &str) -> Vec<(String, String)> {
        let mut headers = self.headers.list.clone();
        let version = ("MCP-Protocol-Version", session.version.as_deref());
        for (name, value) in [("Accept", Some(accepted)), version, ("Mcp-Session-Id", session.id.as_deref())] {
            headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
        headers
    }

    /// Passes a line to the client, with secrets redacted. A line feed in JSON is replaced by a space.
    pub(super) fn pass(&self, line: &[u8]) -> Result<()> {
        let mut line = match std::str::from_utf8(line) {
            Ok(text) => self.headers.scrub(text).into_bytes(),
            Err(_) => return Err(Error::new(Code::Server, "the server sent bytes that are not UTF-8")),
        };
        line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        self.post.send(Event::FromServer(line)).map_err(|_| Error::new(Code::Io, "the client has left"))
    }

    /// Reports the failure of a message to the client, if it waits for a response, and on standard error.
    pub(super) fn tell(&self, request: &ClientMessage, why: &Failure) {
        if !self.is_quiet {
            let error = Error::new(Code::Unknown, self.headers.scrub(&why.message)).without_secrets();
            line_to_stderr(&format!("cp-mcp: the server {}: {}", self.name, error.message()));
        }
        let _ = self.refuse(request, why);
    }

    /// Answers a request with a failure.
    pub(super) fn refuse(&self, request: &ClientMessage, why: &Failure) -> Result<()> {
        let id = request.id.clone().and_then(|id| RawValue::from_string(id).ok());
        id.and_then(|id| failure(&id, why).ok()).map_or(Ok(()), |line| self.pass(line.as_bytes()))
    }
}

/// The failure for an error.
pub(super) fn failed(error: &Error) -> Failure {
    let hint = error.hint_text().map(|hint| format!("\n{hint}")).unwrap_or_default();
    let message = format!("{}: {}{hint}", error.code(), error.message());
    Failure { code: INTERNAL_ERROR, message, data: error.to_value() }
}

/// The target of a redirect, if it is on the same server.
fn same_server(from: &str, to: &str) -> Option<String> {
    let server = &from[..from.match_indices('/').nth(2).map_or(from.len(), |(at, _)| at)];
    if to.starts_with('/') && !to.starts_with("//") {
        return Some(format!("{server}{to}"));
    }
    to.strip_prefix(server).is_some_and(|rest| rest.starts_with('/')).then(|| to.to_owned())
}

impl Link {
    /// Reads a stream until the response to its request arrives.
    pub(super) fn follow(&self, mut reply: Reply<'_>, request: &ClientMessage) -> Result<()> {
        let (mut parser, mut buffer, mut is_answered) = (Parser::new(), vec![0; CHUNK], false);
        while !is_answered {
            let bytes = reply.read(&mut buffer)?;
            if bytes.is_empty() {
                return Err(Error::new(Code::Network, "the server broke off before it had answered"));
            }
            parser.push(bytes, |event| {
                let is_message = matches!(event.name.as_str(), "" | "message") && !event.data.trim_ascii().is_empty();
                is_answered |= is_message && self.message(&event.data, request)?;
                Ok(())
            })?;
        }
        reply.linger();
        Ok(())
    }

    /// Listens in a thread to the stream of server messages, if the server has one, until either side ends it.
    pub(super) fn listen(self: &Arc<Self>) {
        let (stop, link) = (Stop::default(), Arc::clone(self));
        std::mem::replace(&mut *locked(&self.listening), stop.clone()).stop();
        // Without a thread only these messages are lost.
        let _ = std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
            stopped_by(&stop);
            let client = link.client.within(LISTENING);
            let (url, session) = (locked(&link.url).clone(), locked(&link.session).clone());
            if let Ok(reply) = client.get(&url, &link.headed(&session, "text/event-stream"), u64::MAX) {
                let is_stream =
                    reply.header("content-type").is_some_and(|media| media.starts_with("text/event-stream"));
                let request = ClientMessage::default();
                let _ = if reply.status == 200 && is_stream { link.follow(reply, &request) } else { Ok(()) };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_is_followed_only_on_same_server() {
        let to = |to: &str| same_server("http://localhost:1/mcp", to);
        assert_eq!(to("/mcp/").as_deref(), Some("http://localhost:1/mcp/"));
        assert_eq!(to("http://localhost:1/a").as_deref(), Some("http://localhost:1/a"));
        for other in ["//evil/a", "http://localhost:12/a", "https://localhost:1/a", "http://localhost:1@evil/", "a", ""]
        {
            assert_eq!(to(other), None, "{other}");
        }
    }
}
