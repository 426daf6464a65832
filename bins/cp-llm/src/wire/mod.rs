//! What goes over the wire, as pure functions: a request body out of an [`Ask`], an [`Answer`] out of a body or a stream of events.

pub(crate) mod anthropic;
mod body;
pub(crate) mod gemini;
pub(crate) mod openai;
mod partial;
pub(crate) mod responses;
#[cfg(test)]
mod splits;

use cp_common::wire::{ToolSpec, Turn};
use cp_common::{Code, Error, Result};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use self::partial::{Partial, cut};
use crate::loose;
use crate::mirror::Conversation;
use crate::sse::Event;

/// One request to a model, in nobody's dialect.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The system text, empty for none.
    pub system: String,
    /// The conversation.
    pub messages: Vec<Turn>,
    /// What the model may call.
    pub tools: Vec<ToolSpec>,
    /// The model.
    pub model: String,
    /// `max_tokens`, `temperature`, `top_p`, `stop`, and whatever else the provider understands.
    pub params: Map<String, Value>,
    /// The JSON Schema that the answer shall follow.
    pub schema: Option<Value>,
    /// Whether the answer shall come in pieces.
    pub stream: bool,
    /// Where the conversation is, for a backend that keeps it.
    pub conversation: Option<Conversation>,
}

/// A tool call, whole.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The id that the result must carry.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments, an object, in the bytes that the model wrote.
    pub input: Box<RawValue>,
}

/// What an answer used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Read at full price.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the provider's cache; not part of `input`.
    pub cache_read: u64,
    /// Written to the provider's cache; not part of `input`.
    pub cache_write: u64,
}

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The provider's id of the message.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The text.
    pub text: String,
    /// Blocks that are neither text nor tool calls, as they came.
    pub others: Vec<Value>,
    /// The tool calls that are complete.
    pub calls: Vec<Call>,
    /// Why it ended: `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, `refusal`, `model_context_window_exceeded`.
    pub stop: String,
    /// What it used, where the provider says so.
    pub usage: Option<Tokens>,
}

/// What a provider says about a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// Its type of error.
    pub kind: String,
    /// Its words.
    pub message: String,
    /// The HTTP status, where the body names one.
    pub status: Option<u16>,
}

/// One provider's dialect.
pub(crate) trait Wire: Send + Sync {
    /// Where the request goes, below the base URL.
    fn path(&self, ask: &Ask) -> String;
    /// The headers that carry the key and the version of the dialect.
    fn headers(&self, key: Option<&str>) -> Vec<(String, String)>;
    /// The body of the request.
    fn body(&self, ask: &Ask) -> Result<Vec<u8>>;
    /// The answer in a whole body, parsed and in its bytes.
    fn whole(&self, body: &Value, bytes: &[u8]) -> Result<Answer>;
    /// A decoder for a streamed answer.
    fn decoder(&self) -> Box<dyn Decoder>;
}

/// Puts a streamed answer together.
pub(crate) trait Decoder {
    /// Looks at the bytes of the event that comes next, where their spelling matters.
    fn bytes(&mut self, _data: &[u8]) {}
    /// Takes an event, shows the text it brings, and returns whether it was the last.
    fn event(&mut self, data: &Value, halves: bool, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<bool>;
    /// What has come so far.
    fn partial(&mut self) -> &mut Partial;
}

/// Feeds an event to a decoder: parses it, raises the error it may be, and passes the rest on.
pub(crate) fn feed(decoder: &mut dyn Decoder, event: &Event, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<bool> {
    let data = event.data.trim_ascii();
    if data == b"[DONE]" {
        decoder.partial().ended = true;
        return Ok(true);
    }
    if data.is_empty() {
        return Ok(false);
    }
    let loose = parsed(data)?;
    decoder.bytes(data);
    if let Some(complaint) = complaint(&loose.value, event.name == "error") {
        return Err(complaint.into_error(200));
    }
    decoder.event(&loose.value, loose.halves, show)
}

/// Parses what a server sent, telling bad bytes from bad JSON.
pub(crate) fn parsed(bytes: &[u8]) -> Result<loose::Loose> {
    if std::str::from_utf8(bytes).is_err() {
        return Err(bad_answer("invalid_utf8", "the answer is not valid UTF-8"));
    }
    loose::parse(bytes).map_err(|_| match bytes.trim_ascii_start().first() {
        None => bad_answer("empty", "the answer is empty"),
        Some(b'<') => bad_answer("html", "the answer is a page of markup, not JSON")
            .hint("check the base URL, and whether a proxy or a login page answers in its place"),
        Some(_) => bad_answer("invalid_json", "the answer is not valid JSON"),
    })
}

/// An answer that is none, though the status said so.
pub(crate) fn bad_answer(reason: &str, message: &str) -> Error {
    Error::new(Code::Server, message).with("origin", "upstream").with("reason", reason)
}

/// The complaint in a body or an event, in any of the shapes that providers use.
pub(crate) fn complaint(body: &Value, is_error: bool) -> Option<Complaint> {
    // Google's blocking errors come in a list of one when a stream was asked for.
    let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
    let error = match body.get("error") {
        Some(Value::Null) | None if is_error || body.get("object").is_some_and(|o| o == "error") => body,
        Some(Value::Null) | None => return None,
        Some(error) => error,
    };
    if let Value::String(message) = error {
        return Some(Complaint { message: message.clone(), ..Complaint::default() });
    }
    let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    // `code` is the finer name where a provider has both, and a status where it is a number.
    let kind = text("code").or_else(|| text("status")).or_else(|| text("type")).unwrap_or_default();
    let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let message = text("message").unwrap_or_default();
    Some(Complaint {
        kind: kind.to_owned(),
        message: message.to_owned(),
        status: status.filter(|s| (400..600).contains(s)),
    })
}

impl Complaint {
    /// The error for this complaint. `status` is that of the answer; after a 200 the complaint's own counts.
    pub(crate) fn into_error(self, status: u16) -> Error {
        use crate::http::status::{code_of, status_of};
        let meant = if status < 300 { self.status.unwrap_or_else(|| status_of(&self.kind)) } else { status };
        let code = code_of(meant, &self.kind);
        let words = match (self.message.trim(), self.kind.as_str()) {
            ("", "") => format!("the upstream answered with status {meant}"),
            ("", kind) => format!("the upstream answered {meant} {kind}"),
            (message, "") => format!("the upstream answered {meant}: {}", shortened(message)),
            (message, kind) => format!("the upstream answered {meant} {kind}: {}", shortened(message)),
        };
        let mut error = Error::new(code, words).with("origin", "upstream").with("status", meant);
        if !self.kind.is_empty() {
            error = error.with("upstream_type", self.kind);
        }
        if !self.message.is_empty() {
            error = error.with("upstream_message", shortened(&self.message));
        }
        match code {
            // The next item would meet the same closed door.
            Code::Auth | Code::Forbidden => error.fatal(),
            _ => error,
        }
    }
}

/// The first line or so of what an upstream says.
pub(crate) fn shortened(message: &str) -> String {
    const MOST: usize = 600;
    let one_line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}

/// A member as text.
pub(crate) fn text_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// A member as a count; what is absent or null is 0.
pub(crate) fn count_of(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn complaints_are_found_in_every_shape() {
        let kind = |body: Value| complaint(&body, false).map(|c| (c.kind, c.message, c.status));
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
    }

    #[test]
    fn a_status_of_the_answer_wins_over_the_words() {
        let complaint = Complaint { kind: "overloaded_error".into(), message: "m".into(), status: None };
        assert_eq!(complaint.clone().into_error(429).code(), Code::RateLimited);
        assert_eq!(complaint.into_error(200).code(), Code::Server);
    }

    #[test]
    fn what_is_no_json_is_told_apart() {
        for (bytes, reason) in [
            (&b"<html>"[..], "html"),
            (b"", "empty"),
            (b"{\"a\":", "invalid_json"),
            (b"{\"a\":\"\xFF\"}", "invalid_utf8"),
        ] {
            assert_eq!(parsed(bytes).err().unwrap().details()["reason"], reason);
        }
    }
}
