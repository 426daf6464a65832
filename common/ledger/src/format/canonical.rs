//! The hash that the control plane takes of a JSON value: SHA-256 of its text with sorted names, `", "` and `": "`
//! between the parts, and characters beyond ASCII as they are. That is what Python writes with `json.dumps(value,
//! sort_keys=True, ensure_ascii=False)`.

use std::collections::BTreeMap;

use cp_common::json;
use cp_common::keys::{Key, hex};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::format::line::Hash;

/// The hash of a value: `sha256:` and 64 digits.
pub fn hash_value(value: &Value) -> String {
    hash_normal(value.to_string().as_bytes())
}

/// The hash of the JSON text that [`json::normalize`] made.
pub fn hash_normal(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    write(text, &mut out);
    Hash::of(&out).to_string()
}

/// The keyed hash of the same text, for values that must not be found by trial: `hmac-sha256:` and 64 digits.
pub fn tag_of_normal(text: &[u8], purpose: &[u8], key: &Key) -> String {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    write(text, &mut out);
    format!("hmac-sha256:{}", hex(&key.tag(&[purpose, b"\0", &out])))
}

fn write(value: &[u8], out: &mut Vec<u8>) {
    let separator = |at: usize| if at == 0 { &b""[..] } else { b", " };
    match value.first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_slice(value).unwrap_or_default();
            out.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                out.extend_from_slice(separator(at));
                json::string(name, out);
                out.extend_from_slice(b": ");
                write(value.get().as_bytes(), out);
            }
            out.push(b'}');
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_slice(value).unwrap_or_default();
            out.push(b'[');
            for (at, element) in elements.iter().enumerate() {
                out.extend_from_slice(separator(at));
                write(element.get().as_bytes(), out);
            }
            out.push(b']');
        }
        Some(b'-' | b'0'..=b'9') => number(value, out),
        _ => out.extend_from_slice(value),
    }
}

/// Whole numbers keep their digits; the others are written as Python writes them.
fn number(text: &[u8], out: &mut Vec<u8>) {
    let whole = !text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok()) {
        _ if text == b"-0" => out.push(b'0'),
        Some(float) if !whole => out.extend_from_slice(python(float).as_bytes()),
        _ => out.extend_from_slice(text),
    }
}

/// The shortest digits that give the number back, with an exponent below -4 and from 16 on.
fn python(float: f64) -> String {
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if float != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{float}");
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(json: &str) -> String {
        let (mut normal, mut out) = (Vec::new(), Vec::new());
        json::normalize(json.as_bytes(), &mut normal).unwrap();
        write(&normal, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_known_hashes_of_the_control_plane() {
        for (value, hash) in [
            (json!({"operation": "signal_status"}), "53ac6d34788ff22586c541810e716e8bf63ec78fb54a1f0be0fd4540a98bf167"),
            (
                json!({"operation": "governed_roots"}),
                "a79c45b26cfc5707c0591daf7813a3f17c44e585586e499410524ad097ee5ffa",
            ),
            (json!({"cmd": ":help"}), "c04f56bc0b76db6804f3f019dbf2acbd71e585f88c4bb3a7f0a20403af753d55"),
        ] {
            assert_eq!(hash_value(&value), format!("sha256:{hash}"));
        }
    }

    #[test]
    fn names_are_sorted_at_every_depth_and_the_rest_keeps_its_order() {
        assert_eq!(
            text(r#"{"b":[3,{"z":1,"a":{"y":null,"x":true}}],"a":"é\"{,:","":[]}"#),
            r#"{"": [], "a": "é\"{,:", "b": [3, {"a": {"x": true, "y": null}, "z": 1}]}"#
        );
        assert_eq!(text(r#"{"\u00e9":1,"z":{}}"#), r#"{"z": {}, "é": 1}"#);
        assert_eq!(text("[[],[[1]],{}]"), "[[], [[1]], {}]");
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        for (json, python) in [
            ("1.0", "1.0"),
            ("1e2", "100.0"),
            ("1e16", "1e+16"),
            ("1.5e300", "1.5e+300"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("-0.0", "-0.0"),
            ("-0", "0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("0.1", "0.1"),
        ] {
            assert_eq!(text(json), python);
        }
    }
}
