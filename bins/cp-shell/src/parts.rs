//! Asking another of our programs.

use cp_common::coprocess;
use cp_common::{Code, Context, Result, words};
use serde_json::Value;

use crate::plane::{Failure, Plane};

/// The data of the answer of one of our programs to these words.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    coprocess::ask(program, words, b"", context)?.data()
}

/// Runs a command line through cp-exec: the tree may forbid it, and policy decides. A command that ran and failed is a result.
pub(crate) fn execute(context: &Context, plane: &Plane, command: &str) -> std::result::Result<Value, Failure> {
    if command.is_empty() {
        return Err(Failure::new("MISSING_FIELD", "there is no command after `!`").with("field", "command"));
    }
    // What cannot be split is refused by cp-exec, with the reason.
    if let Ok(words) = words::split(command) {
        plane.check_capability(&words.argv)?;
    }
    // In one word, with a space: a command that begins with `-` or `=` is still one.
    match ask(context, "cp-exec", &[&format!("-c {command}")]) {
        Err(error) if error.code() == Code::CommandFailed => Ok(Value::Object(error.details())),
        other => other.map_err(Failure::from),
    }
}
