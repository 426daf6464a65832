//! Asking another of our programs.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use cp_common::words::{Words, split};
use cp_common::{Context, Error, Result, coprocess};
use serde_json::Value;

use crate::plane::{Failure, Plane};

/// The data of the answer of one of our programs to these words.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    coprocess::ask(program, words, b"", context)?.data()
}

/// Refuses a command that the tree forbids. Its words may be meant from here or from the root of the tree: neither may write there.
/// The programs of a command line are known only when they start; cp-exec decides about them then.
pub(crate) fn check_governed(context: &Context, plane: &Plane, command: &str) -> std::result::Result<(), Failure> {
    let Ok(Words { argv, .. }) = split(command) else { return Ok(()) };
    plane.check_capability(&argv)?;
    let is_governed = |word: &&String| Path::new(word).is_relative() && plane.governs(word);
    let Some(word) = argv.iter().skip(1).find(is_governed) else { return Ok(()) };
    let mut question: Vec<OsString> = vec!["check".into(), "--cwd".into(), plane.root().into()];
    question.extend(plane.root_option());
    question.push("--".into());
    question.extend(argv.iter().map(OsString::from));
    let decision: Value = coprocess::ask("cp-exec", &question, b"", context)?.data()?;
    match decision["rule"].as_str() {
        Some(rule @ ("pristine" | "append_only")) => {
            let class = rule.to_uppercase();
            Err(Failure::new("CAPABILITY_DENIED", format!("Capability denied: write on {word}: {class}"))
                .with("capability", "write")
                .with("path", word.as_str())
                .with("rule", class)
                .hint("only installing a package writes there; a file elsewhere is named by its absolute path"))
        }
        _ => Ok(()),
    }
}

/// Runs the line that asks the owner of the policy. Whether they said yes.
pub(crate) fn owner_approves(line: &str) -> Result<bool> {
    let argv = split(line).map_err(Error::from)?.argv;
    let mut command = Command::new(coprocess::find("cp-exec")?);
    let status = command.args(argv.iter().skip(1)).stdout(Stdio::null()).status();
    Ok(status.map_err(|e| Error::io("starting cp-exec", e))?.success())
}
