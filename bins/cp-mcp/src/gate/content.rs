//! Text and media of a server: secrets are redacted, control characters are shown, and media that cannot be decoded is refused.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cp_common::output::printable;
use cp_common::{Code, Error, Result, json};
use cp_mcp_wire::CallResult;
use cp_redact::Redactor;
use serde_json::value::RawValue;

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

/// A JSON string in which control characters and bidirectional overrides are visible; `None` if it has no such character.
pub(super) fn escape_controls(text: &RawValue) -> Option<Box<RawValue>> {
    let text: String = serde_json::from_str(text.get()).ok()?;
    let shown = printable(&text);
    (shown != text).then(|| serde_json::value::to_raw_value(&shown).ok()).flatten()
}

/// Refuses the result of a call that has an image or audio which is not base64.
pub(super) fn check_media(result: &RawValue) -> Result<()> {
    let Ok(result) = serde_json::from_str::<CallResult>(result.get()) else { return Ok(()) };
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
            check_media(&RawValue::from_string(block).unwrap())
        };
        assert!(check("").is_ok() && check("AAA=").is_ok());
        for wrong in ["AAA", "????", "data:image/png;base64,AAAA", "AA AA"] {
            assert!(check(wrong).unwrap_err().message().contains("an image (image/png)"), "{wrong}");
        }
    }
}
