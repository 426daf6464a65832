//! What was said before and what is remembered, as `cp-session` tells it. The session's files are its own affair.

use std::process::{Command, Stdio};

use cp_common::coprocess;
use cp_common::wire::Turn;
use cp_common::wire::record::Record;
use cp_common::{Code, Context, Error, Result};
use serde::Deserialize;

/// How much of a session goes to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// The whole history
    #[default]
    Persistent,
    /// Only the new prompt; the history stays on disk
    Isolated,
}

/// A session, as far as a prompt needs it.
#[derive(Debug, Deserialize)]
pub(crate) struct Session {
    /// Its whole id.
    #[serde(rename = "session_id")]
    pub(crate) id: String,
    /// Who speaks in it.
    #[serde(default)]
    pub(crate) agent: String,
    /// How much of it goes to the model where nobody says.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// What was said, oldest first.
    pub(crate) messages: Vec<Turn>,
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Closing {
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    notices: Vec<Notice>,
}

#[derive(Deserialize)]
struct Notice {
    message: String,
}

impl Session {
    /// Runs `cp-session load` for the newest `last` turns. Its failure is ours, code and all.
    pub(crate) fn load(last: Option<usize>, context: &Context) -> Result<Self> {
        let mut arguments = vec!["load".to_owned()];
        if let Some(last) = last {
            arguments.extend(["--last".to_owned(), last.to_string()]);
        }
        ask(&arguments, context)
    }
}

/// What was remembered.
#[derive(Debug, Deserialize)]
pub(crate) struct Memory {
    /// Each thing, best first.
    pub(crate) items: Vec<Remembered>,
}

/// One thing.
#[derive(Debug, Deserialize)]
pub(crate) struct Remembered {
    /// What it says.
    pub(crate) text: String,
}

/// Runs `cp-session recall` for what is remembered of this.
pub(crate) fn recall(kind: &str, about: &str, context: &Context) -> Result<Memory> {
    let words = ["recall", "--kind", kind, "--limit", "8", "--", about];
    ask(&words.map(str::to_owned), context)
}

/// Runs a verb of `cp-session` and reads its answer.
fn ask<T: serde::de::DeserializeOwned>(arguments: &[String], context: &Context) -> Result<T> {
    let program = coprocess::find("cp-session")?;
    let (verb, rest) = arguments.split_first().ok_or_else(|| broken("no verb"))?;
    let mut command = Command::new(&program);
    command.arg(verb).args(context.handed_on()).args(["--format", "json"]).args(rest);
    // Its words for people come back in the answer, and are said once.
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|e| Error::io(format!("starting {}", program.display()), e))?;
    let line = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    let record = Record::parse(line).map_err(|e| broken(e.message()))?;
    if !record.ok {
        return Err(failure(&record));
    }
    if let Ok(Closing { meta }) = serde_json::from_slice(line) {
        for notice in meta.notices {
            context.warn(&format!("cp-session: {}", notice.message));
        }
    }
    let data = record.data.ok_or_else(|| broken("it has no data"))?;
    serde_json::from_str(data.get()).map_err(|e| broken(&e.to_string()))
}

fn broken(reason: &str) -> Error {
    Error::new(Code::Io, format!("cp-session gave no answer: {reason}"))
}

fn failure(record: &Record<'_>) -> Error {
    let told: Told = record
        .error
        .and_then(|error| serde_json::from_str(error.get()).ok())
        .unwrap_or(Told { message: String::new(), details: serde_json::Map::new() });
    let mut error = Error::new(record.code(), told.message).with("part", "cp-session");
    for (name, value) in told.details {
        error = match (name.as_str(), value.as_str()) {
            ("hint", Some(hint)) => error.hint(hint),
            _ => error.with(&name, value),
        };
    }
    error
}

/// How many leading turns cannot begin a conversation: answers, and results of calls that are not there.
pub(crate) fn unfit_beginning(turns: &[Turn]) -> usize {
    turns.iter().position(is_question).unwrap_or(turns.len())
}

/// Whether a person or a program asks here, and no tool answers.
pub(crate) fn is_question(turn: &Turn) -> bool {
    let answers = |block: &cp_common::wire::Block| block.view().is_ok_and(|view| view.kind == "tool_result");
    turn.role == "user" && !turn.content.blocks().iter().any(answers)
}

#[cfg(test)]
mod tests {
    use cp_common::wire::{Block, Content};

    use super::*;

    #[test]
    fn a_conversation_begins_with_a_question() {
        let result = Turn { role: "user".into(), content: Content::Blocks(vec![Block::tool_result("1", "x", false)]) };
        let turns = [Turn::text("assistant", "a"), result, Turn::text("assistant", "b"), Turn::text("user", "c")];
        assert_eq!(unfit_beginning(&turns), 3);
        assert_eq!(unfit_beginning(&turns[..3]), 3);
        assert_eq!(unfit_beginning(&turns[3..]), 0);
        assert_eq!(unfit_beginning(&[]), 0);
    }
}
