//! Asking another of our programs for one answer.

use std::ffi::OsString;

use cp_common::coprocess;
use cp_common::{Code, Context, Error, Result, words};
use serde_json::Value;

use crate::plane::{Failure, Plane};

/// Runs a program of ours with these words, and gives the data of its answer. An error is handed on as it came.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    let (before, after) = words.split_at(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
    let mut argv: Vec<OsString> = before.iter().map(Into::into).collect();
    argv.extend(context.handed_on().into_iter().map(OsString::from));
    argv.extend(["--format", "json"].map(OsString::from));
    argv.extend(after.iter().map(OsString::from));
    let run = duct::cmd(coprocess::find(program)?, argv).stdin_null().stdout_capture().stderr_null().unchecked().run();
    let output = run.map_err(|e| Error::io(format!("running {program}"), e))?;
    let last = output.stdout.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let answer: Value = serde_json::from_slice(last)
        .map_err(|_| Error::new(Code::Unknown, format!("{program} ended without an answer")))?;
    if answer["ok"] == true { Ok(answer["data"].clone()) } else { Err(error_of(&answer["error"])) }
}

/// The error of an envelope.
pub(crate) fn error_of(error: &Value) -> Error {
    let code = error["code"].as_str().and_then(Code::from_name).unwrap_or(Code::Unknown);
    let mut found = Error::new(code, error["message"].as_str().unwrap_or("failed"));
    for (name, value) in error["details"].as_object().into_iter().flatten() {
        found = match value.as_str().filter(|_| name == "hint") {
            Some(hint) => found.hint(hint),
            None => found.with(name, value.clone()),
        };
    }
    found
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
