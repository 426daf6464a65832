//! Failures of the upstream: the error that a provider reports, the code for an HTTP status, `Retry-After` in each of
//! its forms, and answers that cannot be used or were cut short.

use std::time::Duration;

use cp_common::{Code, Error};
use cp_http::client;
use cp_redact::Redactor;
use serde_json::Value;

/// The statuses for the types of errors, which decide where an event in a stream has no status.
const KINDS: [(u16, &str); 9] = [
    (400, "invalid_request_error invalid_prompt context_length_exceeded INVALID_ARGUMENT FAILED_PRECONDITION"),
    (401, "authentication_error invalid_api_key API_KEY_INVALID UNAUTHENTICATED"),
    (402, "insufficient_quota billing_error billing_hard_limit_reached billing_not_active credit_balance_too_low"),
    (403, "permission_error insufficient_permissions PERMISSION_DENIED"),
    (404, "not_found_error model_not_found NOT_FOUND"),
    (408, "timeout_error DEADLINE_EXCEEDED"),
    (413, "request_too_large"),
    (429, "rate_limit_error rate_limit_exceeded RESOURCE_EXHAUSTED tokens requests"),
    (529, "overloaded_error UNAVAILABLE"),
];

/// The status for the type of an `error` event in a stream.
pub(crate) fn status_of(kind: &str) -> u16 {
    let known = KINDS.iter().find(|(_, kinds)| kinds.split(' ').any(|known| known == kind));
    known.map_or(500, |(status, _)| *status)
}

/// The code for an HTTP status. `kind` is the error type that the body names, if it names one.
pub(crate) fn code_of(status: u16, kind: &str) -> Code {
    match (status, status_of(kind)) {
        // Gemini and xAI report a wrong key with status 400.
        (400, 401) => Code::Auth,
        // A used-up quota or credit is not a rate limit, even with that status.
        (400 | 429, 402) => Code::Forbidden,
        _ => client::code_of(status),
    }
}

/// The error type of providers that have it only in the message.
pub(crate) fn kind_in(message: &str) -> Option<&'static str> {
    let kinds = [
        ("Your credit balance is too low", "credit_balance_too_low"),
        ("Incorrect API key provided", "invalid_api_key"),
        ("API key not valid", "API_KEY_INVALID"),
    ];
    kinds.iter().find(|(words, _)| message.starts_with(words)).map(|(_, kind)| *kind)
}

/// The delay that the upstream asks for: `retry-after-ms`, `retry-after` in seconds or as a date, or in the body.
pub(crate) fn retry_after(header: impl Fn(&str) -> Option<String>, body: &Value, now_ms: i64) -> Option<Duration> {
    header("retry-after-ms")
        .and_then(|text| seconds(&text, 0.001))
        .or_else(|| header("retry-after").and_then(|text| seconds(&text, 1.0).or_else(|| until(&text, now_ms))))
        .or_else(|| body_delay(body))
}

fn seconds(text: &str, unit: f64) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// The time until an HTTP date.
fn until(text: &str, now_ms: i64) -> Option<Duration> {
    let date = chrono::DateTime::parse_from_rfc2822(text.trim()).ok()?;
    Some(Duration::from_millis(u64::try_from(date.timestamp_millis() - now_ms).unwrap_or(0)))
}

/// `RetryInfo` of Google, and members of compatible servers.
fn body_delay(body: &Value) -> Option<Duration> {
    let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
    let error = body.get("error").unwrap_or(body);
    let info = error.get("details").and_then(Value::as_array).into_iter().flatten().find_map(|d| d.get("retryDelay"));
    let delay = info.or_else(|| error.get("retry_after")).or_else(|| error.pointer("/metadata/retry_after"))?;
    match delay {
        Value::String(text) => seconds(text.strip_suffix('s').unwrap_or(text), 1.0),
        number => Duration::try_from_secs_f64(number.as_f64()?).ok(),
    }
}

/// The error that a provider reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamError {
    /// The error type.
    pub kind: String,
    /// The message.
    pub message: String,
    /// The HTTP status in the body.
    pub status: Option<u16>,
}

/// The error for a successful response that is not usable.
pub(crate) fn bad_answer(reason: &str, message: &str) -> Error {
    Error::new(Code::Server, message).with("origin", "upstream").with("reason", reason)
}

/// The error for a stream that ended before its answer.
pub(crate) fn cut() -> Error {
    Error::new(Code::Network, "the answer was cut short").with("origin", "upstream").with("reason", "cut")
}

/// The error for a stream that begins a second answer before the end of the first.
pub(super) fn restarted() -> Error {
    bad_answer("restarted", "the stream has a second answer before the end of the first")
}

impl UpstreamError {
    /// Finds the error in a body or an event, in the shapes of all providers. With `is_error` the body itself may be
    /// the error.
    pub(crate) fn find(body: &Value, is_error: bool) -> Option<Self> {
        // Google wraps the error of a streamed request in a list.
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        let error = match body.get("error").filter(|error| !words(error).is_empty()) {
            None if is_error || body.get("object").is_some_and(|o| o == "error") => body,
            found => found?,
        };
        // Some servers have the name of the status as `error`, and their words beside it.
        let message = words(if error.is_object() { error } else { body });
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        // Google reports a wrong key only in the details, others only in the message.
        let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
        let reason =
            details.filter_map(|detail| detail.get("reason")?.as_str()).find(|reason| reason.starts_with("API_KEY_"));
        let named = reason.or_else(|| kind_in(&message));
        // `code` is more specific than `type`. A number is a status.
        let kind =
            named.or_else(|| text("code")).or_else(|| text("status")).or_else(|| text("type")).unwrap_or_default();
        let mut codes = ["code", "status_code"].iter().filter_map(|name| error.get(*name)?.as_u64());
        let status = codes.next().and_then(|code| u16::try_from(code).ok());
        let (kind, status) = (kind.to_owned(), status.filter(|s| (400..600).contains(s)));
        Some(Self { kind, message, status })
    }

    /// Makes the error. The status of the response counts, or after a 200 the status of the error.
    pub(crate) fn into_error(self, status: u16) -> Error {
        let meant = if status < 300 { self.status.unwrap_or_else(|| status_of(&self.kind)) } else { status };
        let code = code_of(meant, &self.kind);
        let message = match (self.message.as_str(), self.kind.as_str()) {
            ("", "") => format!("the upstream answered with status {meant}"),
            ("", kind) => format!("the upstream answered {meant} {kind}"),
            (message, "") => format!("the upstream answered {meant}: {}", shortened(message)),
            (message, kind) => format!("the upstream answered {meant} {kind}: {}", shortened(message)),
        };
        let mut error = Error::new(code, message).with("origin", "upstream").with("status", meant);
        if !self.kind.is_empty() {
            error = error.with("upstream_type", self.kind);
        }
        if !self.message.is_empty() {
            error = error.with("upstream_message", shortened(&self.message));
        }
        match code {
            // Other requests would fail in the same way.
            Code::Auth | Code::Forbidden => error.fatal(),
            _ => error,
        }
    }
}

/// The words of an error: the members that servers have for them, else all of it; empty for an empty error.
fn words(error: &Value) -> String {
    const MEMBERS: &str = "error errors title message Message error_message msg detail metadata";
    let members: Vec<(&str, String)> = match error {
        Value::Null | Value::Bool(false) => return String::new(),
        Value::String(text) => return text.trim().to_owned(),
        Value::Array(list) => list.iter().map(|error| ("error", words(error))).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.as_str(), words(value))).collect(),
        other => return other.to_string(),
    };
    let said: Vec<_> = members.into_iter().filter(|(_, words)| !words.is_empty()).collect();
    // A refused member of the request is named only by its place.
    let is_known = |name: &str| MEMBERS.split(' ').any(|known| known == name) && error.get("loc").is_none();
    let known: Vec<_> = said.iter().filter(|(name, _)| is_known(name)).map(|(_, words)| words.as_str()).collect();
    if known.is_empty() && !said.is_empty() { error.to_string() } else { known.join("; ") }
}

/// The words of a body that is not JSON: the title of a page, else its text.
pub(crate) fn words_of_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|at| {
        let from = at + lower[at..].find('>')? + 1;
        text.get(from..from + lower[from..].find("</title")?)
    });
    title.unwrap_or(&text).to_owned()
}

/// Puts a text of the upstream on one line and shortens it.
pub(crate) fn shortened(message: &str) -> String {
    const MOST: usize = 600;
    let one_line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if one_line.len() <= MOST { one_line } else { Redactor::from_environment().shortened(&one_line, MOST) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_event_maps_to_code() {
        for (kind, code) in [
            ("overloaded_error", Code::Server),
            ("rate_limit_error", Code::RateLimited),
            ("authentication_error", Code::Auth),
            ("invalid_request_error", Code::Validation),
            ("insufficient_quota", Code::Forbidden),
            ("never heard of", Code::Server),
        ] {
            assert_eq!(code_of(status_of(kind), kind), code, "{kind}");
        }
        assert_eq!(kind_in("the field `API key not valid` is unknown"), None);
    }

    #[test]
    fn retry_after_is_parsed_in_every_form() {
        let none = |_: &str| None;
        let header =
            |wanted: &'static str, value: &'static str| move |name: &str| (name == wanted).then(|| value.to_owned());
        let wait = |header: &dyn Fn(&str) -> Option<String>, body: Value| {
            retry_after(header, &body, 784_111_770_000).map(|d| d.as_millis())
        };
        assert_eq!(wait(&header("retry-after", "2"), Value::Null), Some(2000));
        assert_eq!(wait(&header("retry-after-ms", "120"), Value::Null), Some(120));
        assert_eq!(wait(&header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Value::Null), Some(7000));
        assert_eq!(wait(&none, json!({"error":{"details":[{"retryDelay":"12s"}]}})), Some(12_000));
        assert_eq!(wait(&none, json!({"error":{"retry_after":1.5}})), Some(1500));
        assert_eq!(wait(&header("retry-after", "soon"), Value::Null), None);
    }

    #[test]
    fn errors_are_found_in_every_shape() {
        let kind = |body: Value| UpstreamError::find(&body, false).map(|c| (c.kind, c.message, c.status));
        let found = |kind: &str, message: &str, status| Some((kind.to_owned(), message.to_owned(), status));
        assert_eq!(
            kind(json!({"type":"error","error":{"type":"overloaded_error","message":"m"}})),
            found("overloaded_error", "m", None)
        );
        assert_eq!(
            kind(json!({"error":{"message":"m","type":"x","code":"insufficient_quota"}})),
            found("insufficient_quota", "m", None)
        );
        assert_eq!(
            kind(json!([{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"m"}}])),
            found("RESOURCE_EXHAUSTED", "m", Some(429))
        );
        assert_eq!(kind(json!({"error":"model not found"})), found("", "model not found", None));
        assert_eq!(kind(json!({"object":"error","message":"m","type":"t","code":404})), found("t", "m", Some(404)));
        assert_eq!(kind(json!({"error":{"message":"m","status_code":400}})), found("", "m", Some(400)));
        assert_eq!(kind(json!({"choices":[],"error":null})), None);
        let gemini = json!({"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}});
        assert_eq!(kind(gemini), found("API_KEY_INVALID", "m", Some(400)));
        let words = "Incorrect API key provided: x";
        assert_eq!(kind(json!({"code":"c","error":words})), found("invalid_api_key", words, None));
    }

    #[test]
    fn response_status_overrides_error_type() {
        let error = UpstreamError { kind: "overloaded_error".into(), message: "m".into(), status: None };
        assert_eq!(error.clone().into_error(429).code(), Code::RateLimited);
        assert_eq!(error.into_error(200).code(), Code::Server);
    }
}
