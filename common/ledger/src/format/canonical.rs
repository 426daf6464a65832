//! The hashes of requests and of results in entries: each formula once, for the programs that write it and for those
//! that recompute it.
//!
//! All are over the text that the control plane writes for a JSON value: sorted names, `", "` and `": "` between the
//! parts, and characters beyond ASCII as they are. That is what Python writes with `json.dumps(value, sort_keys=True,
//! ensure_ascii=False)`.

use std::borrow::Cow;

use cp_common::json;
use cp_common::keys::{Key, hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::format::line::{Hash, inside, members, value_at};

/// The hash of a value: `sha256:` and 64 digits.
pub fn hash_value(value: &Value) -> String {
    hash_normal(value.to_string().as_bytes())
}

/// The hash of the JSON text that [`json::normalize`] made.
pub fn hash_normal(text: &[u8]) -> String {
    Hash::of(&canonical(text)).to_string()
}

/// The input of a command's hash, as its entry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The command is the text of a JSON value, and the hash is over that value.
    Request,
    /// The command is a text, and the hash is over `{"cmd": text}`.
    Cmd,
}

/// The value that a command stands for, in normal form.
fn value_of(form: Form, command: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(command.len() + 10);
    // A request that is not JSON is treated as words, so that it still has a hash.
    if form == Form::Request && json::normalize(command.as_bytes(), &mut text).is_ok() {
        return text;
    }
    text.clear();
    text.extend_from_slice(b"{\"cmd\":");
    json::string(command, &mut text);
    text.push(b'}');
    text
}

/// `command_hash` of a turn.
pub fn command_hash(form: Form, command: &str) -> String {
    hash_normal(&value_of(form, command))
}

/// `command_hmac` of a turn: instead of the hash where a secret was taken out of the command.
pub fn command_hmac(form: Form, command: &str, key: &Key) -> String {
    tag_of_command(&value_of(form, command), key)
}

/// The keyed hash of a command in normal form, which cannot be found by trial: `hmac-sha256:` and 64 digits.
pub fn tag_of_command(value: &[u8], key: &Key) -> String {
    format!("hmac-sha256:{}", hex(&key.tag(&[b"command\0", &canonical(value)])))
}

/// The input of the hash of a process's command, in normal form: its words, its directory, and the sorted names of its
/// variables.
pub fn exec_command(argv: &[impl AsRef<str>], cwd: &str, variables: &[impl AsRef<str>]) -> Vec<u8> {
    let mut names: Vec<&str> = variables.iter().map(AsRef::as_ref).collect();
    names.sort_unstable();
    let argv: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
    serde_json::json!({ "argv": argv, "cwd": cwd, "env": names }).to_string().into_bytes()
}

/// The input of the hash of a process's result.
#[derive(Debug, Serialize)]
pub struct ExecResult<'a> {
    /// Its exit status, if it exited.
    pub return_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The hash of all that it wrote to standard output.
    pub stdout: &'a str,
    /// The hash of all that it wrote to standard error.
    pub stderr: &'a str,
}

/// `result_hash` of a process.
pub fn exec_result(result: &ExecResult<'_>) -> String {
    hash_value(&serde_json::to_value(result).unwrap_or_default())
}

/// The text that is hashed, for a value in normal form.
fn canonical(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + value.len() / 4);
    write(value, &mut out);
    out
}

fn write(value: &[u8], out: &mut Vec<u8>) {
    let separator = |at: usize| if at == 0 { &b""[..] } else { b", " };
    match value.first() {
        Some(b'{') => {
            let members = members(inside(value).unwrap_or_default());
            let mut members: Vec<_> = members.map(|(name, value)| (unescaped(name), name, value)).collect();
            members.sort_unstable();
            out.push(b'{');
            for (at, (_, name, value)) in members.into_iter().enumerate() {
                out.extend_from_slice(separator(at));
                out.push(b'"');
                out.extend_from_slice(name);
                out.extend_from_slice(b"\": ");
                write(value, out);
            }
            out.push(b'}');
        }
        Some(b'[') => {
            let mut end = 0;
            out.push(b'[');
            while let Some(element) = value_at(value, end + 1) {
                out.extend_from_slice(separator(end));
                end = element.end;
                write(&value[element], out);
            }
            out.push(b']');
        }
        Some(b'-' | b'0'..=b'9') => number(value, out),
        _ => out.extend_from_slice(value),
    }
}

/// The name of a member, whose spelling is given without its quotes.
fn unescaped(name: &[u8]) -> Cow<'_, [u8]> {
    let read = || json::unquote(&[b"\"", name, b"\""].concat());
    let read = name.contains(&b'\\').then(read).flatten();
    read.map_or(Cow::Borrowed(name), |name| Cow::Owned(name.into_bytes()))
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
        let mut normal = Vec::new();
        json::normalize(json.as_bytes(), &mut normal).unwrap();
        String::from_utf8(canonical(&normal)).unwrap()
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
        assert_eq!(text(r#"{"a\"":1,"a#":2,"a":3,"\n":4,"a!":5}"#), r#"{"\n": 4, "a": 3, "a!": 5, "a\"": 1, "a#": 2}"#);
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

    #[test]
    fn a_command_has_one_hash_in_each_form() {
        let known = "sha256:c04f56bc0b76db6804f3f019dbf2acbd71e585f88c4bb3a7f0a20403af753d55";
        assert_eq!(command_hash(Form::Cmd, ":help"), known);
        assert_eq!(command_hash(Form::Request, r#"{ "cmd" : ":help" }"#), known);
        assert_ne!(command_hash(Form::Cmd, r#"{"cmd":":help"}"#), known);
        assert_eq!(command_hash(Form::Request, "{bad"), command_hash(Form::Cmd, "{bad"));
    }

    #[test]
    fn the_order_of_variables_does_not_matter_and_that_of_words_does() {
        let hash = |argv: &[&str], names: &[&str]| hash_normal(&exec_command(argv, "/w", names));
        assert_eq!(hash(&["a", "b"], &["X", "Y"]), hash(&["a", "b"], &["Y", "X"]));
        assert_ne!(hash(&["a", "b"], &[]), hash(&["b", "a"], &[]));
        assert_ne!(hash(&["a b"], &[]), hash(&["a", "b"], &[]));
        let every: String = ('\0'..='\u{2ff}').chain("\u{2028}\u{fffd}😀".chars()).collect();
        assert!(json::is_normal(&exec_command(&[&every], &every, &[&every])));
    }
}
