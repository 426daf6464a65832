//! Messages of JSON-RPC: written for both sides, and read from a server that may break the protocol. In the text and
//! media of a server secrets are redacted, control characters are shown, and media that cannot be decoded is refused.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cp_common::output::printable;
use cp_common::{Code, Error, Result, json};
use cp_mcp_wire::{CallResult, Failure, INTERNAL_ERROR, INVALID_REQUEST, failure, parse, result};
use cp_redact::Redactor;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// An id in its canonical spelling.
pub(crate) type Id = String;

/// The canonical spelling of an id. An integer keeps its digits.
pub(crate) fn id_of(id: &RawValue) -> Id {
    match serde_json::from_str(id.get()) {
        Ok(text @ Value::String(_)) => text.to_string(),
        Ok(_) | Err(_) => id.get().to_owned(),
    }
}

#[derive(Serialize)]
struct Outgoing<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
}

/// The line of a request, or of a notification if there is no id. It has only members that the gate has read, because a
/// server could interpret others differently.
pub(super) fn message(id: Option<&RawValue>, method: &str, params: Option<&RawValue>) -> String {
    let text = serde_json::to_string(&Outgoing { jsonrpc: "2.0", id, method, params });
    text.map(|text| text + "\n").unwrap_or_default()
}

/// The line of a response.
pub(super) fn response(id: &RawValue, outcome: &Result<&RawValue, Failure>) -> String {
    match outcome {
        Ok(value) => result(id, value),
        Err(error) => failure(id, error),
    }
    .unwrap_or_default()
}

/// The line that refuses a request. A refused tool call is a failed result, because the model reads only results.
pub(super) fn refusal(id: &RawValue, method: &str, error: &Error) -> String {
    let hint = error.hint_text().map(|hint| format!("\n{hint}")).unwrap_or_default();
    let text = format!("{}: {}{hint}", error.code(), error.message());
    if method == "tools/call" {
        return result(id, &CallResult::of_text(&text, true)).unwrap_or_default();
    }
    let code = if error.code() == Code::Validation { INVALID_REQUEST } else { INTERNAL_ERROR };
    let failure = Failure { code, message: text, data: error.to_value() };
    response(id, &Err(failure))
}

/// Reads the lines of a server.
#[derive(Default)]
pub(super) struct LineReader {
    fragment: Option<Fragment>,
}

/// A line of a server.
pub(super) enum Line<'a> {
    /// A message, repaired if that was necessary.
    Message(Cow<'a, [u8]>),
    /// A message of the protocol that cannot be read: the id of its request, if it is known, and the reason.
    Invalid(Option<Id>, String),
    /// Not a message, such as a banner.
    Other,
}

/// A JSON object whose first line is incomplete: the members that tell if it is a message.
#[derive(Default)]
struct Fragment {
    is_protocol: bool,
    id: Option<Id>,
}

impl LineReader {
    /// Reads one line.
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Line<'a> {
        let Ok(text) = std::str::from_utf8(line) else {
            let text = String::from_utf8_lossy(line);
            let is_protocol = text.trim_start().starts_with('{') && text.contains("\"jsonrpc\"");
            return if is_protocol { Line::Invalid(id_in(&text), "it is not UTF-8".to_owned()) } else { Line::Other };
        };
        let text = replace_lone_surrogates(text);
        if parse(text.as_bytes()).is_some() {
            self.fragment = None;
            return Line::Message(match text {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            });
        }
        if !text.trim_start().starts_with('{') {
            return self.read_fragment(&text);
        }
        match serde_json::from_str::<Value>(&text) {
            // The request could not be read by the server, so its response has no id.
            Ok(value) if value["id"].is_null() && value["error"].is_object() => {
                Line::Invalid(None, format!("the server did not understand it: {}", value["error"]["message"]))
            }
            Ok(_) => Line::Other,
            Err(error) if error.is_eof() => {
                self.fragment = Some(Fragment::default());
                self.read_fragment(&text)
            }
            Err(error) if text.contains("\"jsonrpc\"") => {
                Line::Invalid(id_in(&text), format!("it is not JSON: {error}"))
            }
            Err(_) => self.read_fragment(&text),
        }
    }

    /// Looks for the id of a message that is written over several lines.
    fn read_fragment(&mut self, text: &str) -> Line<'static> {
        let Some(fragment) = &mut self.fragment else { return Line::Other };
        fragment.is_protocol |= text.contains("\"jsonrpc\"");
        fragment.id = id_in(text).or(fragment.id.take());
        match fragment.id.take_if(|_| fragment.is_protocol) {
            Some(id) => {
                self.fragment = None;
                Line::Invalid(Some(id), "it is not one line of JSON".to_owned())
            }
            None => Line::Other,
        }
    }
}

/// The value of the first member `id` in a text that is not valid JSON.
fn id_in(text: &str) -> Option<Id> {
    let (_, value) = text.split_once("\"id\"")?;
    let value = value.trim_start().strip_prefix(':')?.trim_start();
    let mut values = serde_json::Deserializer::from_str(value).into_iter::<&RawValue>();
    // A number at the end of an incomplete text may be incomplete too.
    values.next()?.ok().map(id_of).filter(|id| id != "null")
}

/// A JSON text in which U+FFFD replaces each escape of a surrogate that is not half of a pair: no string can hold one.
fn replace_lone_surrogates(text: &str) -> Cow<'_, str> {
    let surrogate = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok().filter(|unit| (0xd800..=0xdfff).contains(unit))
    };
    let (mut repaired, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(found) = text[at..].find('\\').map(|offset| at + offset) {
        at = match (surrogate(found), surrogate(found + 6)) {
            (Some(..0xdc00), Some(0xdc00..)) => found + 12,
            (Some(_), _) => {
                repaired.push_str(&text[kept..found]);
                repaired.push('\u{fffd}');
                kept = found + 6;
                kept
            }
            // The escaped character may be a backslash, and is never the start of another escape.
            (None, _) => found + 1 + text[found + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if kept == 0 { Cow::Borrowed(text) } else { Cow::Owned(repaired + &text[kept..]) }
}

/// The members of a JSON object; each value keeps its bytes.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

/// The members of results and notifications that hold free text. Others, such as cursors, must not change.
const TEXTS: [&str; 5] = ["content", "structuredContent", "contents", "messages", "data"];

/// An object with the secrets in its text redacted; `None` if it has no secrets.
pub(super) fn redact_members(redactor: &Redactor, object: &RawValue) -> Option<Box<RawValue>> {
    let mut members: Members = serde_json::from_str(object.get()).ok()?;
    let mut count = 0;
    for (_, value) in members.iter_mut().filter(|(name, _)| TEXTS.contains(&name.as_str())) {
        if let Some(clean) = redact(redactor, value) {
            *value = clean;
            count += 1;
        }
    }
    (count > 0).then(|| serde_json::value::to_raw_value(&members).ok()).flatten()
}

/// A value with the secrets in its strings redacted; `None` if it has no secrets.
pub(super) fn redact(redactor: &Redactor, value: &RawValue) -> Option<Box<RawValue>> {
    let mut text = Vec::with_capacity(value.get().len());
    json::normalize(value.get().as_bytes(), &mut text).ok()?;
    if redactor.redact(&mut text, 0) == 0 {
        return None;
    }
    RawValue::from_string(String::from_utf8(text).ok()?).ok()
}

/// A JSON string in which control characters and bidirectional overrides are visible; `None` if it has no such
/// character.
pub(super) fn escape_controls(text: &RawValue) -> Option<Box<RawValue>> {
    let text: String = serde_json::from_str(text.get()).ok()?;
    let shown = printable(&text);
    (shown != text).then(|| serde_json::value::to_raw_value(&shown).ok()).flatten()
}

/// Refuses the result of a call that has an image or audio which is not base64.
pub(super) fn check_media(result: &CallResult) -> Result<()> {
    match result.media().find(|media| STANDARD.decode(&media.data).is_err()) {
        None => Ok(()),
        Some(media) => {
            let kind = if media.is_image { "an image" } else { "audio" };
            let message = format!("the result has {kind} ({}) that is not valid base64", media.media_type);
            Err(Error::new(Code::Server, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&[u8]]) -> Vec<String> {
        let mut reader = LineReader::default();
        let shown = |line: &&[u8]| match reader.read(line) {
            Line::Message(message) => String::from_utf8(message.into_owned()).unwrap(),
            Line::Invalid(id, reason) => format!("{}: {reason}", id.unwrap_or_default()),
            Line::Other => String::new(),
        };
        lines.iter().map(shown).collect()
    }

    #[test]
    fn lone_surrogate_is_replaced_and_pair_is_kept() {
        for (text, repaired) in [
            (r#"{"a":"\ud83d\ude00 \\ud800 \n"}"#, r#"{"a":"\ud83d\ude00 \\ud800 \n"}"#),
            (r#"{"a":"\ud800 \uDC00\ud83d\u0041"}"#, "{\"a\":\"\u{fffd} \u{fffd}\u{fffd}\\u0041\"}"),
            (r#"{"a":"\ud8"#, r#"{"a":"\ud8"#),
            ("\\", "\\"),
        ] {
            assert_eq!(replace_lone_surrogates(text), repaired);
        }
        assert_eq!(read(&[br#"{"id":1,"result":"\ud800"}"#]), ["{\"id\":1,\"result\":\"\u{fffd}\"}"]);
    }

    #[test]
    fn unreadable_message_gives_id_and_reason() {
        let one = |line: &[u8]| read(&[line]).concat();
        assert_eq!(one(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}"), "7: it is not UTF-8");
        assert!(one(br#"{"jsonrpc":"2.0","id":7,"result":{bad}}"#).starts_with("7: it is not JSON"));
        assert_eq!(one(br#"{"jsonrpc":"2.0","id":7,"result":{"#), "7: it is not one line of JSON");
        assert!(one(br#"{"jsonrpc":"2.0","id":null,"error":{"message":"no"}}"#).contains("did not understand"));
        let lines: [&[u8]; 6] =
            [b"{", b"  \"result\": {", b"  },", b"  \"jsonrpc\": \"2.0\",", b"  \"id\": \"a\"", b"}"];
        assert_eq!(read(&lines).concat(), "\"a\": it is not one line of JSON");
    }

    #[test]
    fn banners_and_objects_that_are_not_messages_are_ignored() {
        let lines: [&[u8]; 7] = [
            b"Server listening",
            b"{",
            b"  \"id\": 7,",
            b"  \"port\": 80",
            b"}",
            b"\x00\xff",
            b"{\"id\":null,\"result\":{}}",
        ];
        assert_eq!(read(&lines).concat(), "");
    }

    #[test]
    fn secrets_in_text_are_redacted_and_cursor_is_kept() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let redactor = Redactor::default();
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
        let secret =
            format!(r#"{{"content":[{{"type":"text","text":"\u0067{}"}}],"nextCursor":"{key}","n":1e400}}"#, &key[1..]);
        let clean = redact_members(&redactor, &raw(&secret)).unwrap();
        assert_eq!(
            clean.get(),
            format!(
                r#"{{"content":[{{"type":"text","text":"[REDACTED:github_token]"}}],"n":1e400,"nextCursor":"{key}"}}"#
            )
        );
        assert!(redact_members(&redactor, &raw(r#"{"content":[],"nextCursor":"x"}"#)).is_none());
    }

    #[test]
    fn controls_of_description_are_shown() {
        let raw = |text: &str| serde_json::value::to_raw_value(text).unwrap();
        let shown = escape_controls(&raw("a\u{1b}[31mb\u{202e}c\n\td")).unwrap();
        assert_eq!(shown.get(), r#""a^[[31mb<U+202E>c\n\td""#);
        assert!(escape_controls(&raw("grüße\n")).is_none());
    }

    #[test]
    fn media_that_is_not_base64_is_refused() {
        let check = |data: &str| {
            let block = format!(r#"{{"content":[{{"type":"image","mimeType":"image/png","data":"{data}"}}]}}"#);
            check_media(&serde_json::from_str(&block).unwrap())
        };
        assert!(check("").is_ok() && check("AAA=").is_ok());
        for wrong in ["AAA", "????", "data:image/png;base64,AAAA", "AA AA"] {
            assert!(check(wrong).unwrap_err().message().contains("an image (image/png)"), "{wrong}");
        }
    }
}
