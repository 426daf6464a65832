//! Any text with its secrets taken out, and with a secret of our own: still JSON with the same numbers and as many
//! names, and nothing left to take out. The input is a secret, a NUL, and a text: JSON, or what becomes a string of it.
#![no_main]

use cp_common::json;
use cp_redact::Redactor;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|input: &str| {
    let (secret, text) = input.split_once('\0').unwrap_or(("", input));
    let redactor = Redactor::knowing([secret.to_owned()]);
    let mut document = Vec::new();
    if json::normalize(text.as_bytes(), &mut document).is_err() {
        json::string(text, &mut document);
    }
    let before = shape(&serde_json::from_slice(&document).unwrap_or_default());
    redactor.redact(&mut document, 0);
    assert!(json::is_normal(&document));
    assert_eq!(shape(&serde_json::from_slice(&document).unwrap_or_default()), before);
    let once = document.clone();
    redactor.redact(&mut document, 0);
    assert_eq!(document, once);
});

/// What is not in strings.
fn shape(document: &Value) -> Value {
    match document {
        Value::String(_) => Value::Null,
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(members) => members.values().map(shape).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}
