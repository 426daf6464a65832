//! A session's turns and memories, as `cp-session` prints them. This program never reads the files of a session.

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
    /// The whole id.
    #[serde(rename = "session_id")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) agent: String,
    /// How much of it goes to the model where no option says.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// The turns, oldest first.
    pub(crate) messages: Vec<Turn>,
}

impl Session {
    /// Runs `cp-session load` for the newest `last` turns, and fails with its error.
    pub(crate) fn load(last: Option<usize>, context: &Context) -> Result<Self> {
        let last = last.map(|last| last.to_string());
        let arguments: Vec<&str> = ["load"].into_iter().chain(last.iter().flat_map(|last| ["--last", last])).collect();
        ask(&arguments, context)
    }
}

/// Memories.
#[derive(Debug, Deserialize)]
pub(crate) struct Memory {
    /// Best match first.
    pub(crate) items: Vec<Remembered>,
}

/// A memory.
#[derive(Debug, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) text: String,
}

/// Runs `cp-session recall` for the memories about a text.
pub(crate) fn recall(kind: &str, about: &str, context: &Context) -> Result<Memory> {
    ask(&["recall", "--kind", kind, "--limit", "8", "--", about], context)
}

/// Runs a verb of `cp-session` and reads its answer.
fn ask<T: serde::de::DeserializeOwned>(arguments: &[&str], context: &Context) -> Result<T> {
    let answer = coprocess::ask("cp-session", arguments, b"", context)?;
    for notice in answer.notices() {
        context.warn(&format!("cp-session: {notice}"));
    }
    answer.data()
}

/// How many leading turns cannot begin a conversation: answers, and tool results without their calls.
pub(crate) fn unfit_beginning(turns: &[Turn]) -> usize {
    turns.iter().position(Turn::is_question).unwrap_or(turns.len())
}

#[cfg(test)]
mod tests {
    use cp_common::wire::{Block, Content};

    use super::*;

    #[test]
    fn a_conversation_begins_with_a_question() {
        let result = Turn::of("user", Content::Blocks(vec![Block::tool_result("1", "x", false)]));
        let turns = [Turn::text("assistant", "a"), result, Turn::text("assistant", "b"), Turn::text("user", "c")];
        assert_eq!(unfit_beginning(&turns), 3);
        assert_eq!(unfit_beginning(&turns[..3]), 3);
        assert_eq!(unfit_beginning(&turns[3..]), 0);
        assert_eq!(unfit_beginning(&[]), 0);
    }
}
