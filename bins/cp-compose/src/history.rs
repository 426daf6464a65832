//! What was said before and what is remembered, as `cp-session` tells it. The session's files are its own affair.

use cp_common::coprocess;
use cp_common::wire::Turn;
use cp_common::{Context, Result};
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

impl Session {
    /// Runs `cp-session load` for the newest `last` turns. Its failure is ours, code and all.
    pub(crate) fn load(last: Option<usize>, context: &Context) -> Result<Self> {
        let last = last.map(|last| last.to_string());
        let words: Vec<&str> = ["load"].into_iter().chain(last.iter().flat_map(|last| ["--last", last])).collect();
        ask(&words, context)
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
    ask(&["recall", "--kind", kind, "--limit", "8", "--", about], context)
}

/// Runs a verb of `cp-session` and reads its answer.
fn ask<T: serde::de::DeserializeOwned>(words: &[&str], context: &Context) -> Result<T> {
    let answer = coprocess::ask("cp-session", words, b"", context)?;
    for notice in answer.notices() {
        context.warn(&format!("cp-session: {notice}"));
    }
    answer.data()
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
