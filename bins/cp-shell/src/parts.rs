//! Asking another of our programs.

use std::process::{Command, Stdio};

use cp_common::words::split;
use cp_common::{Context, Error, Result, coprocess};
use serde_json::Value;

/// The data of the answer of one of our programs to these words.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    coprocess::ask(program, words, b"", context)?.data()
}

/// Runs the line that asks the owner of the policy. Whether they said yes.
pub(crate) fn owner_approves(line: &str) -> Result<bool> {
    let argv = split(line).map_err(Error::from)?.argv;
    let mut command = Command::new(coprocess::find("cp-exec")?);
    let status = command.args(argv.iter().skip(1)).stdout(Stdio::null()).status();
    Ok(status.map_err(|e| Error::io("starting cp-exec", e))?.success())
}
