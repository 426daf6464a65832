//! One request and its answer over HTTP: the body out, the answer in, whole or as it comes, and every way it can break told apart.

use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result, clock};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::http::client::{Client, Reply};
use crate::http::status;
use crate::mirror::Mirror;
use crate::secret::Secret;
use crate::sse;
use crate::wire::{Answer, Ask, Decoder, Wire, bad_answer, complaint, feed, parsed};

/// A server and the dialect it speaks.
pub(crate) struct Server {
    /// The name of the backend.
    pub name: &'static str,
    /// The dialect.
    pub wire: Box<dyn Wire>,
    /// The base URL, without a slash at its end.
    pub base: String,
    /// The key, if there is one.
    pub key: Option<Secret>,
    /// The connections.
    pub client: Client,
}

/// What an exchange left behind, for the ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces {
    /// The HTTP status, once there was one.
    pub status: Option<u16>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// From the start to the first piece of the answer.
    pub first: Option<Duration>,
    /// The hash of the body as it came.
    pub hash: Option<String>,
    /// Whether words were shown.
    pub shown: bool,
    /// What the backend keeps of the conversation.
    pub mirror: Option<Mirror>,
}

/// `sha256:` and the hash of bytes.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    named(Sha256::digest(bytes).as_slice())
}

fn named(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

impl Server {
    /// The URL and the headers of a request. The headers hold the key.
    pub(crate) fn address(&self, ask: &Ask) -> (String, Vec<(String, String)>) {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers
            .push(("accept".to_owned(), if ask.stream { "text/event-stream" } else { "application/json" }.to_owned()));
        headers.extend(self.wire.headers(self.key.as_ref().map(Secret::reveal)));
        headers.extend(std::env::var("TRACEPARENT").ok().map(|parent| ("traceparent".to_owned(), parent)));
        (format!("{}{}", self.base, self.wire.path(ask)), headers)
    }

    /// Sends the body and reads the answer.
    pub(crate) fn exchange(
        &self,
        ask: &Ask,
        body: &[u8],
        traces: &mut Traces,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Answer> {
        let (url, headers) = self.address(ask);
        let start = Instant::now();
        let outcome = self.client.post(&url, &headers, body).and_then(|mut reply| {
            traces.status = Some(reply.status);
            traces.request_id =
                ["request-id", "x-request-id", "x-goog-request-id"].iter().find_map(|name| reply.header(name));
            if reply.status >= 300 {
                return Err(refusal(&mut reply));
            }
            if let Some(encoding) = reply.header("content-encoding").filter(|e| !e.eq_ignore_ascii_case("identity")) {
                return Err(bad_answer(
                    "encoding",
                    &format!("the answer is encoded as {encoding}, which was not asked for"),
                )
                .hint("a proxy in between compresses; ask it for identity"));
            }
            // Some servers ignore `stream` and answer whole: what came is told by its type, not by what was asked.
            let streams = ask.stream && reply.header("content-type").is_none_or(|kind| kind.contains("event-stream"));
            if streams { self.streamed(reply, start, traces, show) } else { self.whole(reply, start, traces, show) }
        });
        // That nobody reads any more is not the server's to explain.
        outcome.map_err(|error| if error.is_reader_gone() { error } else { self.settled(&error, traces) })
    }

    /// Asks for a resource below the base and gives its JSON.
    pub(crate) fn fetch(&self, path: &str) -> Result<Value> {
        let fetched = || {
            let headers = self.wire.headers(self.key.as_ref().map(Secret::reveal));
            let mut reply = self.client.get(&format!("{}{path}", self.base), &headers)?;
            if reply.status >= 300 {
                return Err(refusal(&mut reply));
            }
            let mut body = Vec::new();
            reply.read_all(&mut body)?;
            Ok(parsed(&body)?.value)
        };
        fetched().map_err(|error| self.settled(&error, &Traces::default()))
    }

    fn whole(
        &self,
        mut reply: Reply<'_>,
        start: Instant,
        traces: &mut Traces,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Answer> {
        let mut body = Vec::new();
        let read = reply.read_all(&mut body);
        traces.first = Some(start.elapsed());
        traces.hash = Some(hash_of(&body));
        if let Err(error) = read {
            return Err(as_cut(error, &String::from_utf8_lossy(&body)));
        }
        let answer = parsed(&body).and_then(|loose| {
            if let Some(complaint) = complaint(&loose.value, false) {
                return Err(complaint.into_error(reply.status));
            }
            let value =
                if loose.halves { crate::loose::parse_whole(&body).unwrap_or(loose.value) } else { loose.value };
            self.wire.whole(&value, &body)
        });
        let answer = answer.map_err(|error| with_partial(error, &String::from_utf8_lossy(&body)))?;
        if ask_to_show(&answer) {
            traces.shown = true;
            show(&answer.text)?;
        }
        Ok(answer)
    }

    fn streamed(
        &self,
        mut reply: Reply<'_>,
        start: Instant,
        traces: &mut Traces,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Answer> {
        let mut stream =
            Stream { decoder: self.wire.decoder(), parser: sse::Parser::new(), hash: Sha256::new(), head: Vec::new() };
        let outcome = stream.read(&mut reply, start, traces, show);
        traces.hash = Some(named(stream.hash.finalize().as_slice()));
        let said = stream.decoder.partial().text.as_str().to_owned();
        match outcome {
            Ok(()) => reply.linger(),
            Err(error) => return Err(as_cut(error, &said)),
        }
        let partial = std::mem::take(stream.decoder.partial());
        // Nothing of a stream in it: it was never one.
        if partial.id.is_none()
            && !partial.ended
            && partial.stop.is_none()
            && said.is_empty()
            && !stream.head.is_empty()
        {
            let head = String::from_utf8_lossy(&stream.head).into_owned();
            return Err(match parsed(&stream.head) {
                Ok(loose) => complaint(&loose.value, false).map_or_else(
                    || bad_answer("no_stream", "the answer is no stream of events"),
                    |c| c.into_error(reply_status(traces)),
                ),
                Err(error) => with_partial(error, &head),
            });
        }
        partial.finish().map_err(|error| with_partial(error, &said))
    }

    /// Takes the key out of everything that an error says, and marks what is not ours.
    fn settled(&self, error: &Error, traces: &Traces) -> Error {
        let scrub = |text: &str| self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text));
        let message = format!("{}: {}", self.name, scrub(error.message()));
        let mut settled = Error::new(error.code(), message).with("backend", self.name);
        let mut untrusted = Vec::new();
        for (name, value) in error.details().into_iter().filter(|(name, _)| name != "hint") {
            if ["partial", "upstream_message", "upstream_type"].contains(&name.as_str()) {
                untrusted.push(Value::from(format!("/{name}")));
            }
            settled = settled.with(
                &name,
                match value {
                    Value::String(text) => Value::from(scrub(&text)),
                    other => other,
                },
            );
        }
        if let Some(id) = &traces.request_id {
            settled = settled.with("request_id", scrub(id));
        }
        if !untrusted.is_empty() {
            settled = settled.with("_untrusted", untrusted);
        }
        if let Some(hint) = error.hint_text() {
            settled = settled.hint(hint);
        } else if error.code() == Code::Auth {
            settled = settled.hint("the key was refused: check that it is whole and still valid");
        }
        if error.is_fatal() { settled.fatal() } else { settled }
    }
}

fn reply_status(traces: &Traces) -> u16 {
    traces.status.unwrap_or(200)
}

/// A stream was asked for and the answer came whole: its words are shown at once.
fn ask_to_show(answer: &Answer) -> bool {
    !answer.text.is_empty()
}

struct Stream {
    decoder: Box<dyn Decoder>,
    parser: sse::Parser,
    hash: Sha256,
    /// The first bytes, to say what came where no stream did.
    head: Vec<u8>,
}

impl Stream {
    fn read(
        &mut self,
        reply: &mut Reply<'_>,
        start: Instant,
        traces: &mut Traces,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        const HEAD: usize = 64 << 10;
        let mut buffer = vec![0; 16 << 10];
        let decoder = self.decoder.as_mut();
        let mut ended = false;
        let Traces { first, shown, .. } = traces;
        let mut show = |text: &str| {
            *shown = true;
            show(text)
        };
        while !ended {
            let bytes = reply.read(&mut buffer)?;
            if bytes.is_empty() {
                break;
            }
            first.get_or_insert_with(|| start.elapsed());
            self.hash.update(bytes);
            if self.head.len() < HEAD {
                self.head.extend_from_slice(bytes);
            }
            self.parser.push(bytes, |event| {
                if !ended {
                    ended = feed(decoder, &event, &mut show)?;
                }
                Ok(())
            })?;
        }
        if ended {
            return Ok(());
        }
        match std::mem::take(&mut self.parser).finish() {
            // The last event of a cut stream is half a line of JSON; that it is cut is what there is to say.
            Some(event) => match feed(decoder, &event, &mut show) {
                Err(error) if error.details().get("reason").is_some_and(|reason| reason == "invalid_json") => {
                    Err(crate::wire::cut())
                }
                other => other.map(|_| ()),
            },
            None => Ok(()),
        }
    }
}

/// A failure while the body came. What the transport calls a broken connection is an answer that was cut short.
fn as_cut(error: Error, said: &str) -> Error {
    let error = if error.code() == Code::Network && !error.details().contains_key("reason") {
        error.with("reason", "cut")
    } else {
        error
    };
    with_partial(error, said)
}

/// Keeps what came before the failure.
fn with_partial(error: Error, said: &str) -> Error {
    const MOST: usize = 64 << 10;
    if said.is_empty() || error.details().contains_key("partial") {
        return error;
    }
    let end = (0..=said.len().min(MOST)).rev().find(|at| said.is_char_boundary(*at)).unwrap_or(0);
    error.with("partial", &said[..end])
}

/// The error in an answer whose status says that it is one.
fn refusal(reply: &mut Reply<'_>) -> Error {
    let mut body = Vec::new();
    // The status is known; a body that breaks off cannot make it less so.
    let _ = reply.read_all(&mut body);
    let value = crate::loose::parse_whole(&body).unwrap_or(Value::Object(Map::new()));
    let complaint = complaint(&value, true).unwrap_or_default();
    let words = complaint.message.clone();
    let status = reply.status;
    let mut error = complaint.into_error(status);
    if words.is_empty() && !body.is_empty() && value.as_object().is_some_and(Map::is_empty) {
        error = error.with("upstream_message", crate::wire::shortened(&String::from_utf8_lossy(&body)));
    }
    if (300..400).contains(&status) {
        let to = reply.header("location").unwrap_or_default();
        error = error
            .with("location", to.as_str())
            .hint("redirects are not followed with a key: set the base URL to where it leads")
            .fatal();
    }
    let now = i64::try_from(clock::unix_seconds()).unwrap_or(0) * 1000;
    match status::retry_after(|name| reply.header(name), &value, &words, now) {
        Some(wait) => error.with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        None => error,
    }
}
