//! The hashes of requests and of results in entries: each formula once, for the programs that write it and for those
//! that recompute it. All are over the control plane's spelling of a JSON value; see [`super::canonical`].

use cp_common::json;
use cp_common::keys::Key;
use serde::{Deserialize, Serialize};

use super::canonical::{hash_normal, hash_value, tag_of_normal};

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

/// The keyed hash of a command in normal form.
pub fn tag_of_command(value: &[u8], key: &Key) -> String {
    tag_of_normal(value, b"command", key)
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

#[cfg(test)]
mod tests {
    use super::*;

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
