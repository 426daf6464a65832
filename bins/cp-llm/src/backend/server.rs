//! A provider's server as a backend: one request over HTTP and its answer, whole or streamed.

use std::fs::File;
use std::io::{Read, Write as _};
use std::time::Instant;

use cp_common::wire::{Origin, Usage};
use cp_common::{Code, Error, Result, clock, keys};
use cp_http::client::{Client, LIMIT, Reply};
use cp_redact::Redactor;
use serde_json::{Map, Value};
use sha2::Digest as _;

use super::secret::{Secret, Veil};
use super::stream::{Stream, as_cut, with_partial};
use super::{Backend, Destination, Exchange};
use crate::dialect::{
    Answer, Dialect, Lowered, Piece, Request, Show, UpstreamError, bad_answer, finish, json as loose, lowered, parsed,
    shortened, upstream,
};

/// The headers that providers put their id of a request in.
const REQUEST_ID: [&str; 3] = ["request-id", "x-request-id", "x-goog-request-id"];

/// A server and its dialect.
pub(crate) struct Server {
    /// The name of its endpoint.
    pub(super) endpoint: String,
    /// The name of its dialect.
    pub(super) name: &'static str,
    pub(crate) dialect: Box<dyn Dialect>,
    /// The base URL, without a slash at its end.
    pub(crate) base: String,
    /// The key, if there is one.
    pub(super) key: Option<Secret>,
    /// The headers of each request, below those that are its own.
    pub(super) headers: Vec<(String, String)>,
    /// Headers of the command line, which win over all others.
    pub(super) given: Vec<(String, String)>,
    pub(super) client: Client,
}

impl Backend for Server {
    fn name(&self) -> &str {
        self.name
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        self.dialect.body(request, &self.origin())
    }

    fn lowered(&self, request: &Request) -> Result<Lowered> {
        lowered(request, &self.origin())
    }

    fn destination(&self, request: &Request) -> Option<Destination> {
        let mut headers = self.headers(request, None);
        for (name, value) in &mut headers {
            let is_own = self.headers.iter().any(|(own, _)| own == name);
            if self.given.iter().any(|(given, _)| given == name) || is_own && is_secret(name, value) {
                "[REDACTED]".clone_into(value);
            }
        }
        Some(Destination { url: self.url(request), headers })
    }

    fn exchange(&self, request: &Request, body: &[u8], show: &mut Show<'_>) -> Exchange {
        let headers = self.headers(request, self.key());
        let start = Instant::now();
        let mut veil = Veil::of(self.key.as_ref());
        let mut exchange = match self.client.post(&self.url(request), &headers, body) {
            Ok(reply) => self.answered(reply, request.stream, start, &mut |kind, text| veil.show(kind, text, show)),
            Err(error) => Exchange::of(Err(error)),
        };
        exchange.outcome = exchange.outcome.and_then(|answer| {
            veil.finish(show)?;
            self.without_key(answer)
        });
        exchange.outcome = exchange.outcome.map_err(|error| {
            // That the reader of our output has gone is not a failure of the server.
            if error.is_reader_gone() { error } else { self.settled(&error, exchange.request_id.as_deref()) }
        });
        exchange
    }

    fn server(&self) -> Option<&Server> {
        Some(self)
    }

    fn models(&self) -> Option<Result<Vec<String>>> {
        let name = |model: &Value| model.get("id").or_else(|| model.get("name"))?.as_str().map(str::to_owned);
        Some(self.resource(self.dialect.models_path()).map(|list| {
            let models = list.get("data").or_else(|| list.get("models")).and_then(Value::as_array);
            let names = models.into_iter().flatten().filter_map(name);
            names.map(|name| name.trim_start_matches("models/").to_owned()).collect()
        }))
    }
}

/// What jobs need of it: resources below the base, and the answers in their results.
impl Server {
    /// The JSON of a resource.
    pub(crate) fn resource(&self, path: &str) -> Result<Value> {
        self.got(path, LIMIT).and_then(json_of).map_err(|error| self.settled(&error, None))
    }

    /// Sends a body of this type and length, read as it goes, and gives the JSON of the answer.
    pub(crate) fn sent(&self, path: &str, kind: &str, body: &mut dyn Read, length: u64) -> Result<Value> {
        let (kind, length) =
            (("content-type".to_owned(), kind.to_owned()), ("content-length".to_owned(), length.to_string()));
        let headers = self.with_own([self.dialect.headers(self.key()), vec![kind, length]].concat());
        let body = ureq::SendBody::from_reader(body);
        let answered = self.client.post(&format!("{}{path}", self.base), &headers, body).and_then(json_of);
        answered.map_err(|error| self.settled(&error, None))
    }

    /// Writes a resource to a file, however large it is.
    pub(crate) fn saved(&self, path: &str, file: &mut File) -> Result<()> {
        let mut read = || {
            let mut reply = self.got(path, u64::MAX)?;
            let mut buffer = vec![0; 64 << 10];
            loop {
                let bytes = reply.read(&mut buffer)?;
                if bytes.is_empty() {
                    return Ok(());
                }
                file.write_all(bytes).map_err(|e| Error::io("keeping the results", e).fatal())?;
            }
        };
        read().map_err(|error| self.settled(&error, None))
    }

    /// The answer in a body that came as a result.
    pub(crate) fn answer(&self, body: &[u8]) -> Result<Answer> {
        let answer = self.decoded(body, 200, &mut None).and_then(|answer| self.without_key(answer));
        answer.map_err(|error| self.settled(&error, None))
    }

    /// The failure that came as a result.
    pub(crate) fn failure(&self, body: &Value, status: u16) -> Error {
        self.settled(&UpstreamError::find(body, true).unwrap_or_default().into_error(status), None)
    }
}

/// An answer that reports success.
fn successful(mut reply: Reply<'_>) -> Result<Reply<'_>> {
    if reply.status >= 300 { Err(refusal(&mut reply)) } else { Ok(reply) }
}

/// The JSON of an answer that reports success.
fn json_of(reply: Reply<'_>) -> Result<Value> {
    let mut reply = successful(reply)?;
    let mut body = Vec::new();
    reply.read_all(&mut body)?;
    Ok(parsed(&body)?.value)
}

impl Server {
    /// Where its answers come from.
    fn origin(&self) -> Origin {
        Origin { endpoint: self.base.clone(), dialect: self.name.to_owned() }
    }

    fn url(&self, request: &Request) -> String {
        format!("{}{}", self.base, self.dialect.path(request))
    }

    fn headers(&self, request: &Request, key: Option<&str>) -> Vec<(String, String)> {
        let accepted = if request.stream { "text/event-stream" } else { "application/json" };
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), accepted.to_owned()),
        ];
        headers.extend(self.dialect.headers(key));
        headers.extend(std::env::var("TRACEPARENT").ok().map(|parent| ("traceparent".to_owned(), parent)));
        self.with_own(headers)
    }

    /// The headers, with those of the endpoint that a request has not already, and those of the command line in the place of any other.
    fn with_own(&self, mut headers: Vec<(String, String)>) -> Vec<(String, String)> {
        for (name, value) in &self.headers {
            if !headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                headers.push((name.clone(), value.clone()));
            }
        }
        headers.retain(|(name, _)| !self.given.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)));
        headers.extend(self.given.iter().cloned());
        headers
    }

    /// The base URL that is meant, where nothing is found below one that lacks its path.
    fn base_meant(&self, error: &Error) -> Option<String> {
        let path = self.dialect.usual_path();
        let is_bare = self.base.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
        (error.details().get("status")? == 404 && is_bare && !path.is_empty()).then(|| format!("{}{path}", self.base))
    }

    /// A resource below the base, not larger than this.
    fn got(&self, path: &str, limit: u64) -> Result<Reply<'_>> {
        let headers = self.with_own(self.dialect.headers(self.key()));
        self.client.get(&format!("{}{path}", self.base), &headers, limit).and_then(successful)
    }

    fn key(&self) -> Option<&str> {
        self.key.as_ref().map(Secret::reveal)
    }

    /// The answer with the key taken out of all that it says.
    fn without_key(&self, answer: Answer) -> Result<Answer> {
        match &self.key {
            Some(key) => key.without(answer),
            None => Ok(answer),
        }
    }

    /// Reads the answer once its status has come.
    fn answered(&self, mut reply: Reply<'_>, stream: bool, start: Instant, show: &mut Show<'_>) -> Exchange {
        let status = Some(reply.status);
        let request_id = REQUEST_ID.iter().find_map(|name| reply.header(name));
        let encoding = reply.header("content-encoding").filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
        // Some servers ignore `stream` and answer whole: the type of the answer decides, and not what was asked.
        let streams = stream && reply.header("content-type").is_none_or(|kind| kind.contains("event-stream"));
        let read = if reply.status >= 300 {
            Exchange::of(Err(refusal(&mut reply)))
        } else if let Some(encoding) = encoding {
            let message = format!("the answer is encoded as {encoding}, which was not asked for");
            Exchange::of(Err(bad_answer("encoding", &message)
                .hint("a proxy in between compresses the answer: configure it to pass it on as it is")))
        } else if streams {
            self.streamed(reply, start, show)
        } else {
            self.whole(reply, start, show)
        };
        Exchange { status, request_id, ..read }
    }

    fn whole(&self, mut reply: Reply<'_>, start: Instant, show: &mut Show<'_>) -> Exchange {
        let mut body = Vec::new();
        let read = reply.read_all(&mut body);
        let first = Some(start.elapsed());
        let mut usage = None;
        let outcome = match read {
            Err(error) => Err(as_cut(error, &String::from_utf8_lossy(&body))),
            Ok(()) => self
                .decoded(&body, reply.status, &mut usage)
                .map_err(|error| with_partial(error, &String::from_utf8_lossy(&body)))
                .and_then(|answer| {
                    answer.show(show)?;
                    Ok(answer)
                }),
        };
        Exchange { first, hash: Some(keys::hash(&body)), usage, ..Exchange::of(outcome) }
    }

    /// The answer in a body. What it used is known even where it cannot be taken.
    fn decoded(&self, body: &[u8], status: u16, usage: &mut Option<Usage>) -> Result<Answer> {
        let json = parsed(body)?;
        if let Some(error) = UpstreamError::find(&json.value, false) {
            return Err(error.into_error(status));
        }
        let value = if json.halves { loose::parse_whole(body).unwrap_or(json.value) } else { json.value };
        let mut decoder = self.dialect.decoder();
        let whole = decoder.whole(&Piece { value: &value, bytes: body, halves: false });
        *usage = decoder.partial().usage;
        whole?;
        finish(decoder.as_mut(), &self.origin())
    }

    fn streamed(&self, mut reply: Reply<'_>, start: Instant, show: &mut Show<'_>) -> Exchange {
        let status = reply.status;
        let mut stream = Stream::new(self.dialect.decoder());
        let read = stream.read(&mut reply, start, show);
        if read.is_ok() {
            reply.linger();
        }
        let (first, hash) =
            (stream.first, Some(format!("sha256:{}", keys::hex(&std::mem::take(&mut stream.hash).finalize()))));
        let usage = stream.decoder.partial().usage;
        Exchange { first, hash, usage, ..Exchange::of(stream.answer(read, status, &self.origin())) }
    }

    /// Takes the key out of everything that an error says, and marks what the server wrote.
    fn settled(&self, error: &Error, request_id: Option<&str>) -> Error {
        let scrub = |text: &str| self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text));
        let message = format!("{}: {}", self.endpoint, scrub(error.message()));
        let mut settled =
            Error::new(error.code(), message).with("backend", self.name).with("endpoint", self.endpoint.as_str());
        let mut untrusted = Vec::new();
        for (name, value) in error.details().into_iter().filter(|(name, _)| name != "hint") {
            if ["partial", "upstream_message", "upstream_type"].contains(&name.as_str()) {
                untrusted.push(Value::from(format!("/{name}")));
            }
            let value = value.as_str().map_or(value.clone(), |text| scrub(text).into());
            settled = settled.with(&name, value);
        }
        if let Some(id) = request_id {
            settled = settled.with("request_id", scrub(id));
        }
        if !untrusted.is_empty() {
            settled = settled.with("_untrusted", untrusted);
        }
        if let Some(hint) = error.hint_text() {
            settled = settled.hint(hint);
        } else if let Some(base) = self.base_meant(error) {
            settled = settled.hint(format!(
                "the base URL has no path: set it to {base} (base_url in config/cp.toml, or the variable that names it)"
            ));
        } else if error.code() == Code::Auth {
            settled = settled.hint("the key was refused: check that it is whole and still valid");
        }
        if error.is_fatal() { settled.fatal() } else { settled }
    }
}

/// The error in an answer whose status says that it is one.
fn refusal(reply: &mut Reply<'_>) -> Error {
    let mut body = Vec::new();
    // The status is known; a body that breaks off cannot make it less so.
    let _ = reply.read_all(&mut body);
    let value = loose::parse_whole(&body).unwrap_or(Value::Object(Map::new()));
    let reported = UpstreamError::find(&value, true).unwrap_or_default();
    let message = reported.message.clone();
    let status = reply.status;
    let mut error = reported.into_error(status);
    if message.is_empty() && !body.is_empty() && value.as_object().is_some_and(Map::is_empty) {
        error = error.with("upstream_message", shortened(&String::from_utf8_lossy(&body)));
    }
    if (300..400).contains(&status) {
        let to = reply.header("location").unwrap_or_default();
        error = error
            .with("location", to.as_str())
            .hint("redirects are not followed with a key: set the base URL to where it leads")
            .fatal();
    }
    let now = i64::try_from(clock::unix_seconds()).unwrap_or(0) * 1000;
    match upstream::retry_after(|name| reply.header(name), &value, &message, now) {
        Some(wait) => error.with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        None => error,
    }
}

/// Headers that belong to the connection.
const CONNECTION: [&str; 4] = ["host", "connection", "content-length", "transfer-encoding"];

/// A header for each request, its name in small letters. No error repeats a value.
pub(crate) fn header(name: &str, value: &str) -> Result<(String, String)> {
    let name = name.trim().to_ascii_lowercase();
    let shown = name.escape_debug();
    if !is_name(&name) {
        return Err(Error::validation(format!("`{shown}` is not the name of a header")));
    }
    if !is_value(value) {
        return Err(Error::validation(format!(
            "the value of the header {shown} has characters that HTTP does not allow"
        ))
        .hint("give visible ASCII characters, spaces and tabs"));
    }
    if CONNECTION.contains(&name.as_str()) {
        return Err(Error::validation(format!("the header {shown} belongs to the connection")).hint("remove it"));
    }
    Ok((name, value.trim().to_owned()))
}

/// Whether it can be the name of a header: a token of RFC 9110, 5.6.2.
fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Whether it can be the value of a header: visible ASCII characters, spaces and tabs.
fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
}

/// Whether a header looks like one that holds a key.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password", "credential"].iter().any(|word| name.contains(word))
        || Redactor::from_environment().redact_text(value).1 > 0
}
