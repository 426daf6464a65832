//! A provider's server as a backend: one request over HTTP and its answer, whole or streamed.

use cp_common::wire::Origin;
use cp_common::{Code, Error, Result, clock, keys};
use cp_http::client::{Client, LIMIT, Reply};
use cp_redact::Redactor;
use serde_json::{Map, Value, json};
use sha2::Digest as _;
use ureq::http::{HeaderName, HeaderValue};

use super::secret::{Secret, StreamRedactor};
use super::stream::Body;
use super::{Backend, Exchange};
use crate::wire_api::openai::without_stream_options;
use crate::wire_api::{
    Answer, Lowered, OnText, Request, UpstreamError, WireApi, bad_answer, lowered, parsed, upstream, words_of_text,
};

/// Response headers that have the provider's request id.
const REQUEST_ID: [&str; 3] = ["request-id", "x-request-id", "x-goog-request-id"];

/// A server and its wire API.
pub(crate) struct Server {
    /// The name of its endpoint.
    pub(super) endpoint: String,
    /// The name of its wire API.
    pub(super) name: &'static str,
    pub(crate) api: WireApi,
    /// The base URL, without a trailing slash.
    pub(crate) base: String,
    /// The key, if there is one.
    pub(super) key: Option<Secret>,
    /// What to do if a key is missing.
    pub(super) key_hint: String,
    /// Headers from the configuration. They do not replace headers of the wire API.
    pub(super) headers: Vec<(String, String)>,
    pub(super) client: Client,
}

impl Backend for Server {
    fn name(&self) -> &str {
        self.name
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        (self.api.body)(request, &self.origin())
    }

    fn exchange(&self, request: &Request, body: &[u8], show: &mut OnText<'_>) -> Exchange {
        let mut redactor = StreamRedactor::of(self.key.as_ref());
        let mut exchange = self.sent(request, body, &mut |kind, text| redactor.show(kind, text, show));
        if let (Err(error), Some(less)) = (&exchange.outcome, without_stream_options(body))
            && matches!(exchange.status, Some(400 | 422))
            && error.to_value().to_string().contains("stream_options")
        {
            let id = request.id.as_ref().map(|id| format!("{id}#unmeasured"));
            exchange =
                self.sent(&Request { id, ..request.clone() }, &less, &mut |kind, text| redactor.show(kind, text, show));
        }
        exchange.outcome = exchange.outcome.and_then(|answer| {
            redactor.finish(show)?;
            self.redacted_answer(answer)
        });
        exchange.outcome = exchange.outcome.map_err(|mut error| {
            if error.code() == Code::NotFound {
                // Either may be wrong.
                error = error.with("model", request.model.as_str()).with("url", self.url(request));
            }
            // A closed standard output is not an error of the server.
            if error.is_reader_gone() { error } else { self.redacted_error(&error, exchange.request_id.as_deref()) }
        });
        exchange
    }

    fn server(&self) -> Option<&Server> {
        Some(self)
    }

    fn models(&self) -> Result<Option<Vec<String>>> {
        let list = self.resource(self.api.models_path)?;
        let models = list.get("data").or_else(|| list.get("models")).and_then(Value::as_array);
        let names = models.into_iter().flatten().filter_map(|model| model.get("id").or_else(|| model.get("name")));
        let names = names.filter_map(|name| Some(name.as_str()?.trim_start_matches("models/").to_owned()));
        Ok(Some(names.collect()))
    }
}

/// Requests for batches: resources below the base URL, and the answers in batch results.
impl Server {
    /// Gets a resource as JSON.
    pub(crate) fn resource(&self, path: &str) -> Result<Value> {
        self.get(path, LIMIT).and_then(json_of).map_err(|error| self.redacted_error(&error, None))
    }

    /// Posts a body of this type, with an idempotency key if one is given, and parses the response as JSON. What was
    /// not sent is left in `body`.
    pub(crate) fn post_body(&self, path: &str, kind: &str, body: &mut &[u8], key: Option<&str>) -> Result<Value> {
        let length = body.len().to_string();
        let own = [("content-type", Some(kind)), ("content-length", Some(&*length)), ("idempotency-key", key)];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let headers = self.with_custom_headers(self.api.headers(self.key()).into_iter().chain(own).collect());
        let body = ureq::SendBody::from_reader(body);
        let answered = self.client.post(&join(&self.base, path), &headers, body).and_then(json_of);
        answered.map_err(|error| self.redacted_error(&error, None))
    }

    /// Gets a resource of any size.
    pub(crate) fn download(&self, path: &str) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        let read = self.get(path, u64::MAX).and_then(|mut reply| reply.read_all(&mut body));
        read.map(|()| body).map_err(|error| self.redacted_error(&error, None))
    }

    /// Decodes the response body in a batch result.
    pub(crate) fn answer(&self, body: &[u8]) -> Result<Answer> {
        let mut body = Body::of((self.api.decoder)(), body);
        let read = body.decode();
        let answer = body.answer(read, &self.origin(), &mut |_, _| Ok(()));
        let answer = answer.and_then(|answer| self.redacted_answer(answer));
        answer.map_err(|error| self.redacted_error(&error, None))
    }

    /// Makes the error of a failed batch result.
    pub(crate) fn failure(&self, body: &Value, status: u16) -> Error {
        self.redacted_error(&UpstreamError::find(body, true).unwrap_or_default().into_error(status), None)
    }
}

/// Fails if the status is not a success.
fn check_status(mut reply: Reply<'_>) -> Result<Reply<'_>> {
    if reply.status >= 300 { Err(error_of_reply(&mut reply)) } else { Ok(reply) }
}

/// Parses a successful response as JSON.
fn json_of(reply: Reply<'_>) -> Result<Value> {
    let mut reply = check_status(reply)?;
    let mut body = Vec::new();
    reply.read_all(&mut body)?;
    parsed(&body)
}

impl Server {
    /// Counts the blocks of a request that cannot be sent as they came.
    pub(crate) fn lowered(&self, request: &Request) -> Result<Lowered> {
        lowered(request, &self.origin())
    }

    /// The URL and the headers of a request, without secrets.
    pub(crate) fn destination(&self, request: &Request) -> (String, Vec<(String, String)>) {
        let mut headers = self.headers(request, None);
        for (name, value) in &mut headers {
            if self.headers.iter().any(|(own, _)| own == name) && is_secret(name, value) {
                "[REDACTED]".clone_into(value);
            }
        }
        (self.url(request), headers)
    }

    /// The origin that is noted in the blocks of its answers.
    fn origin(&self) -> Origin {
        Origin { endpoint: self.base.clone(), dialect: self.name.to_owned() }
    }

    fn url(&self, request: &Request) -> String {
        join(&self.base, &(self.api.path)(request))
    }

    fn headers(&self, request: &Request, key: Option<&str>) -> Vec<(String, String)> {
        let accepted = if request.stream { "text/event-stream" } else { "application/json" };
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), accepted.to_owned()),
        ];
        headers.extend(self.api.headers(key));
        // Not every name can be the value of a header.
        let id = request.id.as_ref().filter(|id| HeaderValue::from_str(id).is_ok());
        headers.extend(id.map(|id| ("idempotency-key".to_owned(), id.clone())));
        headers.extend(std::env::var("TRACEPARENT").ok().map(|parent| ("traceparent".to_owned(), parent)));
        self.with_custom_headers(headers)
    }

    /// Adds the headers of the endpoint, unless a header of that name is there.
    fn with_custom_headers(&self, mut headers: Vec<(String, String)>) -> Vec<(String, String)> {
        for (name, value) in &self.headers {
            if !headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                headers.push((name.clone(), value.clone()));
            }
        }
        headers
    }

    /// Suggests the base URL with its usual path if one without a path answered 404.
    fn suggested_base(&self, error: &Error) -> Option<String> {
        let path = self.api.default_path;
        let is_bare = self.base.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
        (error.details().get("status")? == 404 && is_bare && !path.is_empty()).then(|| format!("{}{path}", self.base))
    }

    /// Gets a resource below the base URL, up to this size.
    fn get(&self, path: &str, limit: u64) -> Result<Reply<'_>> {
        let headers = self.with_custom_headers(self.api.headers(self.key()));
        self.client.get(&join(&self.base, path), &headers, limit).and_then(check_status)
    }

    fn key(&self) -> Option<&str> {
        self.key.as_ref().map(Secret::reveal)
    }

    /// Removes the key from all text of an answer.
    fn redacted_answer(&self, mut answer: Answer) -> Result<Answer> {
        self.key.iter().try_for_each(|key| key.redact_answer(&mut answer))?;
        Ok(answer)
    }

    /// Posts a request and reads its response.
    fn sent(&self, request: &Request, body: &[u8], show: &mut OnText<'_>) -> Exchange {
        match self.client.post(&self.url(request), &self.headers(request, self.key()), body) {
            Ok(reply) => self.answered(reply, show),
            Err(error) => Exchange::of(Err(error)),
        }
    }

    /// Reads the response after its status has arrived.
    fn answered(&self, mut reply: Reply<'_>, show: &mut OnText<'_>) -> Exchange {
        let status = Some(reply.status);
        let request_id = REQUEST_ID.iter().find_map(|name| reply.header(name));
        let encoding = reply.header("content-encoding").filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
        let read = if reply.status >= 300 {
            Exchange::of(Err(error_of_reply(&mut reply)))
        } else if let Some(encoding) = encoding {
            let message = format!("the answer is encoded as {encoding}, which was not requested");
            Exchange::of(Err(bad_answer("encoding", &message)
                .hint("a proxy probably compresses responses: configure it to pass them on unchanged")))
        } else {
            let mut body = Body::of((self.api.decoder)(), &[]);
            let read = body.read(&mut reply, show);
            if read.is_ok() {
                reply.linger();
            }
            let hash = Some(format!("sha256:{}", keys::hex(&body.hash.clone().finalize())));
            Exchange { hash, usage: body.partial.usage, ..Exchange::of(body.answer(read, &self.origin(), show)) }
        };
        Exchange { status, request_id, ..read }
    }

    /// Removes the key from all text of an error, and marks the text of the server as untrusted.
    fn redacted_error(&self, error: &Error, request_id: Option<&str>) -> Error {
        let own = [("backend", Some(self.name)), ("endpoint", Some(&*self.endpoint)), ("request_id", request_id)];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
        let details: Map<String, Value> = own.chain(error.details()).collect();
        let untrusted = ["partial", "upstream_message", "upstream_type"].into_iter();
        let untrusted: Vec<_> =
            untrusted.filter(|name| details.contains_key(*name)).map(|name| format!("/{name}")).collect();
        let place = match (details.get("model"), details.get("url")) {
            (Some(Value::String(model)), Some(Value::String(url))) => format!(" (model {model} at {url})"),
            _ => String::new(),
        };
        let message = format!("{}: {}{place}", self.endpoint, error.message());
        let mut value = json!({"code": error.code().row().name, "message": message, "details": details});
        self.key.iter().for_each(|key| key.redact_value(&mut value));
        let mut settled = Error::from_value(&value);
        if !untrusted.is_empty() {
            settled = settled.with("_untrusted", untrusted);
        }
        settled = match self.suggested_base(error) {
            Some(base) => settled.hint(format!(
                "the base URL has no path: set it to {base} (base_url in config/cp.toml, or the variable that names it)"
            )),
            None if error.hint_text().is_some() => settled,
            None if error.code() == Code::Auth && self.key.is_none() && self.headers.is_empty() => {
                settled.hint(format!("no key was sent: {}", self.key_hint))
            }
            None if error.code() == Code::Auth => {
                settled.hint("the key was refused: check that it is whole and still valid")
            }
            None if error.code() == Code::NotFound => settled.hint("list the models of the server: cp-ask models"),
            None => settled,
        };
        if error.is_fatal() { settled.fatal() } else { settled }
    }
}

/// Joins a path to a base URL, before the query of the base.
fn join(base: &str, path: &str) -> String {
    let [(base, query), (path, own)] = [base, path].map(|text| text.split_once('?').unwrap_or((text, "")));
    let mark = if query.is_empty() && own.is_empty() { "" } else { "?" };
    let and = if query.is_empty() || own.is_empty() { "" } else { "&" };
    format!("{}{path}{mark}{own}{and}{query}", base.trim_end_matches('/'))
}

/// The base URL of an API: without the path of its requests, which users copy from the documentation of a server.
pub(super) fn base_of(api: &WireApi, given: &str) -> String {
    let (base, query) = given.split_once('?').unwrap_or((given, ""));
    let base = base.trim_end_matches('/');
    let path = (api.path)(&Request::default());
    let base = base.strip_suffix(&path).unwrap_or(base);
    // A path may include the version, which other APIs have in the base.
    let base = base.strip_suffix("/v1").filter(|_| path.starts_with("/v1/")).unwrap_or(base);
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{base}{mark}{query}")
}

/// Makes the error of a response whose status is not a success.
fn error_of_reply(reply: &mut Reply<'_>) -> Error {
    let mut body = Vec::new();
    // The status alone is enough if the body breaks off.
    let _ = reply.read_all(&mut body);
    let (value, hint) = match parsed(&body) {
        Ok(value) => (value, None),
        Err(error) => (words_of_text(&body).into(), error.hint_text().map(str::to_owned)),
    };
    let status = reply.status;
    let error = UpstreamError::find(&value, true).unwrap_or_default().into_error(status);
    let mut error = hint.into_iter().fold(error, Error::hint);
    if (300..400).contains(&status) {
        let to = reply.header("location").unwrap_or_default();
        error = error
            .with("location", to.as_str())
            .hint("redirects are not followed with a key: set the base URL to the target of the redirect")
            .fatal();
    }
    let now = i64::try_from(clock::unix_seconds()).unwrap_or(0) * 1000;
    match upstream::retry_after(|name| reply.header(name), &value, now) {
        Some(wait) => error
            .with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
            .hint(format!("the provider asks to wait {} seconds", wait.as_secs_f64().ceil())),
        None => error,
    }
}

/// Headers that the HTTP client sets itself.
const CONNECTION: [&str; 4] = ["host", "connection", "content-length", "transfer-encoding"];

/// Validates a header and lowercases its name. Errors never contain the value.
pub(super) fn header(name: &str, value: &str) -> Result<(String, String)> {
    let shown = name.trim().to_ascii_lowercase().escape_debug().to_string();
    let Ok(name) = HeaderName::from_bytes(name.trim().as_bytes()) else {
        return Err(Error::validation(format!("`{shown}` is not the name of a header")));
    };
    if !value.is_ascii() || HeaderValue::from_str(value).is_err() {
        let message = format!("the value of the header {shown} has characters that HTTP does not allow");
        return Err(Error::validation(message).hint("give visible ASCII characters, spaces and tabs"));
    }
    if CONNECTION.contains(&name.as_str()) {
        return Err(Error::validation(format!("the header {shown} belongs to the connection")).hint("remove it"));
    }
    Ok((name.as_str().to_owned(), value.trim().to_owned()))
}

/// True if a header probably has a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password", "credential"].iter().any(|word| name.contains(word))
        || Redactor::from_environment().redact_text(value).1 > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire_api::{anthropic, gemini, openai, responses};

    #[test]
    fn url_has_path_once_and_query_at_its_end() {
        let apis: [(WireApi, &str); 4] = [
            (openai::COMPATIBLE, "/v1/chat/completions"),
            (responses::API, "/v1/responses"),
            (anthropic::API, "/v1/messages"),
            (gemini::API, "/v1/models/m:generateContent"),
        ];
        let request = Request { model: "m".to_owned(), ..Request::default() };
        for (api, path) in &apis {
            let mut given = vec!["https://h/v1".to_owned(), "https://h/v1/".to_owned()];
            if !path.contains(':') {
                given.extend([format!("https://h{path}"), format!("https://h{path}/")]);
            }
            for base in given {
                for query in ["", "?api-version=1&b=2"] {
                    let base = base_of(api, &format!("{base}{query}"));
                    let url = join(&base, &(api.path)(&request));
                    assert_eq!(url, format!("https://h{path}{query}"), "{base}");
                    assert!(!join(&base, "/models?limit=2").contains("completions"), "{base}");
                }
            }
        }
        assert_eq!(join("https://h/v1?a=1", "/x?b=2"), "https://h/v1/x?b=2&a=1");
    }
}
