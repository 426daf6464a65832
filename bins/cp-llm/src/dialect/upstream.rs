//! Failures that are the upstream's: what a provider reports, an answer that cannot be used, and one that was cut short.

use cp_common::{Code, Error};
use cp_redact::Redactor;
use serde_json::Value;

use crate::http::status::{code_of, kind_in, status_of};

/// What a provider says about a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamError {
    /// The provider's type of error.
    pub kind: String,
    /// The provider's message.
    pub message: String,
    /// The HTTP status, where the body names one.
    pub status: Option<u16>,
}

/// The failure to use an answer whose status reports success.
pub(crate) fn bad_answer(reason: &str, message: &str) -> Error {
    unusable(Code::Server, reason, message)
}

/// The failure of a stream that ended before its answer did.
pub(crate) fn cut() -> Error {
    unusable(Code::Network, "cut", "the answer was cut short")
}

fn unusable(code: Code, reason: &str, message: &str) -> Error {
    Error::new(code, message).with("origin", "upstream").with("reason", reason)
}

impl UpstreamError {
    /// The error in a body or an event, in any of the shapes that providers use. `is_error` says that the body is one as a whole.
    pub(crate) fn find(body: &Value, is_error: bool) -> Option<Self> {
        // Google's blocking errors come in a list of one when a stream was asked for.
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        let error = match body.get("error") {
            Some(Value::Null) | None if is_error || body.get("object").is_some_and(|o| o == "error") => body,
            Some(Value::Null) | None => return None,
            Some(error) => error,
        };
        if let Value::String(message) = error {
            let kind = kind_in(message).unwrap_or_default().to_owned();
            return Some(Self { message: message.clone(), kind, ..Self::default() });
        }
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        // A key that Google refuses is named in the details only, and others name it in their words.
        let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
        let reason =
            details.filter_map(|detail| detail.get("reason")?.as_str()).find(|reason| reason.starts_with("API_KEY_"));
        let message = text("message").unwrap_or_default();
        let named = reason.or_else(|| kind_in(message));
        // `code` is the finer name where a provider has both, and a status where it is a number.
        let kind =
            named.or_else(|| text("code")).or_else(|| text("status")).or_else(|| text("type")).unwrap_or_default();
        let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Some(Self {
            kind: kind.to_owned(),
            message: message.to_owned(),
            status: status.filter(|s| (400..600).contains(s)),
        })
    }

    /// The failure that this is. `status` is that of the answer; after a 200 the one that the error names counts.
    pub(crate) fn into_error(self, status: u16) -> Error {
        let meant = if status < 300 { self.status.unwrap_or_else(|| status_of(&self.kind)) } else { status };
        let code = code_of(meant, &self.kind);
        let message = match (self.message.trim(), self.kind.as_str()) {
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
            // The next item would fail in the same way.
            Code::Auth | Code::Forbidden => error.fatal(),
            _ => error,
        }
    }
}

/// A text of an upstream in one line that is not too long.
pub(crate) fn shortened(message: &str) -> String {
    const MOST: usize = 600;
    let one_line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if one_line.len() <= MOST { one_line } else { Redactor::from_environment().shortened(&one_line, MOST) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        assert_eq!(kind(json!({"choices":[],"error":null})), None);
        let gemini = json!({"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}});
        assert_eq!(kind(gemini), found("API_KEY_INVALID", "m", Some(400)));
        let words = "Incorrect API key provided: x";
        assert_eq!(kind(json!({"code":"c","error":words})), found("invalid_api_key", words, None));
    }

    #[test]
    fn a_status_of_the_answer_wins_over_the_words() {
        let error = UpstreamError { kind: "overloaded_error".into(), message: "m".into(), status: None };
        assert_eq!(error.clone().into_error(429).code(), Code::RateLimited);
        assert_eq!(error.into_error(200).code(), Code::Server);
    }
}
