//! Secrets in what a server says, taken out before the client sees them.

use std::collections::BTreeMap;

use cp_common::json;
use cp_redact::Redactor;
use serde_json::value::RawValue;

/// The members of a JSON object; each value stays the bytes that it is.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

/// The members of results and notifications that hold what others wrote. The rest, such as cursors, must stay what it is.
const TEXTS: [&str; 5] = ["content", "structuredContent", "contents", "messages", "data"];

/// An object without the secrets in its texts; none where it holds none.
pub(super) fn cleaned(redactor: &Redactor, object: &RawValue) -> Option<Box<RawValue>> {
    let mut members: Members = serde_json::from_str(object.get()).ok()?;
    let mut count = 0;
    for (_, value) in members.iter_mut().filter(|(name, _)| TEXTS.contains(&name.as_str())) {
        if let Some(clean) = without_secrets(redactor, value) {
            *value = clean;
            count += 1;
        }
    }
    (count > 0).then(|| serde_json::value::to_raw_value(&members).ok()).flatten()
}

/// A value without the secrets in its strings; none where it holds none.
pub(super) fn without_secrets(redactor: &Redactor, value: &RawValue) -> Option<Box<RawValue>> {
    let mut text = Vec::with_capacity(value.get().len());
    json::normalize(value.get().as_bytes(), &mut text).ok()?;
    if redactor.redact(&mut text, 0) == 0 {
        return None;
    }
    RawValue::from_string(String::from_utf8(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_their_secrets_and_nothing_else_changes() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let redactor = Redactor::default();
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
        let secret =
            format!(r#"{{"content":[{{"type":"text","text":"\u0067{}"}}],"nextCursor":"{key}","n":1e400}}"#, &key[1..]);
        let clean = cleaned(&redactor, &raw(&secret)).unwrap();
        assert_eq!(
            clean.get(),
            format!(
                r#"{{"content":[{{"type":"text","text":"[REDACTED:github_token]"}}],"n":1e400,"nextCursor":"{key}"}}"#
            )
        );
        assert!(cleaned(&redactor, &raw(r#"{"content":[],"nextCursor":"x"}"#)).is_none());
    }
}
