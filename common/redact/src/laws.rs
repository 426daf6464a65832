//! Properties of all documents and secrets: JSON remains JSON with the same structure and numbers; member names remain
//! distinct; redaction is idempotent.

use cp_json as json;
use proptest::prelude::*;
use serde_json::Value;

use crate::Redactor;

fn text() -> impl Strategy<Value = String> {
    let pieces = crate::corpus::texts(include_str!("../corpus/pieces.jsonl"));
    prop::collection::vec(prop::sample::select(pieces), 0..6).prop_map(|pieces| pieces.concat())
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => text().prop_map(Value::from),
        1 => (1_000_u64..u64::MAX).prop_map(Value::from),
        1 => Just(Value::from(123_456_789_012_u64)),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Returns the document with empty strings.
fn shape(document: &Value) -> Value {
    match document {
        Value::String(_) => "".into(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(members) => members.values().map(shape).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

fn names(document: &Value) -> Vec<String> {
    match document {
        Value::Array(items) => items.iter().flat_map(names).collect(),
        Value::Object(members) => {
            members.iter().flat_map(|(name, value)| std::iter::once(name.clone()).chain(names(value))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the strings of a document that are not member names.
fn said(document: &Value) -> Vec<String> {
    match document {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(said).collect(),
        Value::Object(members) => members.values().flat_map(said).collect(),
        _ => Vec::new(),
    }
}

fn normal(text: &[u8]) -> Result<Value, TestCaseError> {
    prop_assert!(json::is_normal(text), "{}", String::from_utf8_lossy(text));
    Ok(serde_json::from_slice(text).unwrap())
}

proptest! {
    #[test]
    fn redaction_keeps_document_structure(document in document(), secrets in prop::collection::vec(text(), 0..3), cut in any::<prop::sample::Index>()) {
        let mut text = document.to_string().into_bytes();
        // A secret at any place in the bytes, even across strings, names and escapes.
        let from = cut.index(text.len());
        let slice = String::from_utf8_lossy(&text[from..text.len().min(from + 14)]).into_owned();
        let redactor = Redactor::knowing(secrets.into_iter().chain([slice]));
        redactor.redact(&mut text, 0);
        let clean = normal(&text)?;
        prop_assert_eq!(shape(&clean), shape(&document));
        let once = text.clone();
        prop_assert_eq!(redactor.redact(&mut text, 0), 0, "{}", String::from_utf8_lossy(&once));
        prop_assert_eq!(text, once);
    }

    #[test]
    fn own_secrets_are_removed_from_values_and_kept_in_names(document in document(), secret in "[a-z\"\\\\\n]{12,20}", place in text()) {
        let whole = serde_json::json!({"data": document, "message": format!("{place}{secret}"), secret.clone(): 1});
        let text = whole.to_string().into_bytes();
        let mut own = crate::joined(crate::own::Own::new([secret.clone()]).find(&text));
        crate::mark::keep_within_strings(&text, &mut own);
        let (text, _) = crate::mark::replaced(&text, 0, &own);
        let clean = normal(&text)?;
        prop_assert_eq!(names(&clean), names(&whole));
        prop_assert_eq!(shape(&clean), shape(&whole));
        prop_assert!(said(&clean).iter().all(|text| !text.contains(&secret)));
    }
}

fn redacted(secrets: &[&str], text: &str) -> String {
    let mut text = text.as_bytes().to_vec();
    Redactor::knowing(secrets.iter().map(|secret| (*secret).to_owned())).redact(&mut text, 0);
    String::from_utf8(text).unwrap()
}

#[test]
fn own_secrets_in_numbers_names_escapes_and_reserved_members_are_kept() {
    for (secret, text) in [
        ("123456789012", r#"{"event":"log","data":{"account":123456789012}}"#),
        ("nothing12345", r#"{"message":"a\nothing12345"}"#),
        ("001b[1mnothing", r#"{"message":"a\u001b[1mnothing"}"#),
        ("session_turn", r#"{"event":"session_turn","data":{"session_turn":1}}"#),
        ("session_turn", r#",\"event\":\"session_turn\""#),
        ("session_turn", r#","event":"session_turn","agent":"session_turn""#),
        (r#"":1,"b":2,"c":"#, r#"{"a":1,"b":2,"c":3}"#),
    ] {
        assert_eq!(redacted(&[secret], text), text);
    }
    let text = r#"{"event":"session_turn","turn":1,"message":"session_turn","data":{"event":"session_turn","n":"a\"session_turn\n"}}"#;
    assert_eq!(
        redacted(&["session_turn"], text),
        r#"{"event":"session_turn","turn":1,"message":"[REDACTED:own_secret]","data":{"event":"[REDACTED:own_secret]","n":"a\"[REDACTED:own_secret]\n"}}"#
    );
}

#[test]
fn own_secrets_in_nested_json_are_redacted_longest_first() {
    let nested = r#"{"content":"{\"p\":\"correct \\\"horse\\\" battery\"}"}"#;
    assert_eq!(redacted(&["correct \"horse\" battery"], nested), r#"{"content":"{\"p\":\"[REDACTED:own_secret]\"}"}"#);
    let longer = ["correct horse", "correct horse battery"];
    assert_eq!(redacted(&longer, r#"["correct horse battery"]"#), r#"["[REDACTED:own_secret]"]"#);
    let marked = r#"["[REDACTED:own_secret]and"]"#;
    assert_eq!(redacted(&["REDACTED:own", "own_secret]and"], marked), marked);
}

#[test]
fn number_after_name_is_kept() {
    let text = r#"{"":{"--password value":1000},"password":12345678,"a":["--password",12345678]}"#;
    assert_eq!(redacted(&[], text), text);
}

#[test]
fn redacted_names_remain_distinct() {
    let key = |last: char| format!("ghp_{}{last}", "a1B2c3D4e5".repeat(3) + "a1B2c");
    let text = format!(r#"{{"{}":1,"{}":2,"[REDACTED:github_token#2]":3}}"#, key('x'), key('y'));
    let clean = redacted(&[], &text);
    assert_eq!(clean, r#"{"[REDACTED:github_token]":1,"[REDACTED:github_token#3]":2,"[REDACTED:github_token#2]":3}"#);
}
