//! Messages of JSON-RPC: written for both sides, and read from a server that may break the protocol. In the text of a
//! server secrets are redacted, and control characters are shown.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cp_common::output::printable;
use cp_common::program::VERSION;
use cp_common::{Code, Error, Result, json};
use cp_mcp_wire::{Failure, INTERNAL_ERROR, INVALID_REQUEST, Party};
use cp_redact::Redactor;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// An id in its canonical spelling.
pub(crate) type Id = String;

/// The canonical spelling of an id. An integer keeps its digits.
pub(crate) fn id_of(id: &RawValue) -> Id {
    match serde_json::from_str(id.get()) {
        Ok(text @ Value::String(_)) => text.to_string(),
        Ok(_) | Err(_) => id.get().to_owned(),
    }
}

/// A value as JSON.
pub(crate) fn raw(value: &impl Serialize) -> Result<Box<RawValue>> {
    to_raw_value(value).map_err(|e| Error::new(Code::Unknown, e.to_string()))
}

/// This program, as a client or a server.
pub(crate) fn party() -> Party {
    Party { name: "cp-mcp".to_owned(), version: VERSION.to_owned() }
}

/// The error for a failure that a server answers.
pub(crate) fn refused(server: &str, method: &str, failure: &Failure) -> Error {
    let message = format!("the server {server} refused {method}: {failure}");
    Error::new(Code::Server, message).with(FAILURE, serde_json::to_value(failure).unwrap_or_default())
}

/// The member of an error that has the failure of a server.
const FAILURE: &str = "failure";

/// The failure that a server has answered, if the error is one.
pub(crate) fn failure_of(error: &Error) -> Option<Failure> {
    Failure::deserialize(error.details().get(FAILURE)?).ok()
}

/// The failure for an error: that of a server stays its own.
pub(crate) fn failed(error: &Error) -> Failure {
    if let Some(failure) = failure_of(error) {
        return failure;
    }
    let code = if error.code() == Code::Validation { INVALID_REQUEST } else { INTERNAL_ERROR };
    Failure { code, message: described(error), data: error.to_value() }
}

pub(super) fn described(error: &Error) -> String {
    let hint = error.hint_text().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{}: {}{hint}", error.code(), error.message())
}

/// A line of a server in which U+FFFD replaces each half of a pair of surrogates, because no string can hold one.
pub(super) fn repaired(line: &[u8]) -> Cow<'_, [u8]> {
    let (text, mut repaired) = (String::from_utf8_lossy(line), Vec::new());
    let has_surrogates = text.contains("\\ud") || text.contains("\\uD");
    let is_repaired = has_surrogates && json::normalize(line, &mut repaired).is_ok_and(|count| count > 0);
    if is_repaired { repaired.into() } else { line.into() }
}

/// True if a line that cannot be read looks like a response of the protocol, and not like a banner.
pub(super) fn is_response(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let has = |name: &str| text.contains(&format!("\"{name}\""));
    text.trim_start().starts_with('{') && has("jsonrpc") && has("id") && !has("method")
}

/// The members of a JSON object; each value keeps its bytes.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

/// The members of parameters, if they are an object.
pub(super) fn members_of(params: Option<&RawValue>) -> Members {
    params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default()
}

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
    (count > 0).then(|| to_raw_value(&members).ok()).flatten()
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
    (shown != text).then(|| to_raw_value(&shown).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &[u8]) -> String {
        String::from_utf8(repaired(line).into_owned()).unwrap()
    }

    #[test]
    fn lone_surrogate_is_replaced_and_pair_is_kept() {
        for (text, repaired) in [
            (r#""\ud83d\ude00 \\ud800 \n""#, r#""\ud83d\ude00 \\ud800 \n""#),
            (r#""\ud800 \uDC00\ud83d\u0041""#, "\"\u{fffd} \u{fffd}\u{fffd}A\""),
        ] {
            let message = |value: &str| format!("{{\"id\":1,\"result\":{value}}}");
            assert_eq!(one(message(text).as_bytes()), message(repaired));
        }
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
}
