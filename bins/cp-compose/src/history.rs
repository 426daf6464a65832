//! The turns and memories of a session, which are read with `cp-session`, and `--fit-tokens`, which drops the oldest
//! rounds. This program does not read the files of a session.

use cp_common::wire::{Prompt, Turn, estimated_tokens};
use cp_common::{Context, Error, Result, coprocess};
use serde::Deserialize;
use serde_json::Value;

use crate::account::Account;

/// How much of a session is sent to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// The whole history
    #[default]
    Persistent,
    /// Only the new prompt; the history stays on disk
    Isolated,
}

/// The parts of a session that a prompt needs.
#[derive(Debug, Deserialize)]
pub(crate) struct Session {
    /// The full id.
    #[serde(rename = "session_id")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) agent: String,
    /// The default mode.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// The turns, oldest first.
    pub(crate) messages: Vec<Turn>,
}

impl Session {
    /// Runs `cp-session load` for the newest `last` turns.
    pub(crate) fn load(last: Option<usize>, context: &Context) -> Result<Self> {
        let last = last.map(|last| last.to_string());
        let arguments: Vec<&str> = ["load"].into_iter().chain(last.iter().flat_map(|last| ["--last", last])).collect();
        ask(&arguments, context)
    }
}

/// Runs `cp-session recall` for the memories about a text, the newest first, a line each.
pub(crate) fn recall(kind: &str, about: &str, context: &Context) -> Result<String> {
    let found: Value = ask(&["recall", "--kind", kind, "--limit", "8", "--", about], context)?;
    let texts = found["items"].as_array().into_iter().flatten().filter_map(|item| item["text"].as_str());
    Ok(texts.collect::<Vec<_>>().join("\n"))
}

/// Runs a verb of `cp-session` and parses its answer.
fn ask<T: serde::de::DeserializeOwned>(arguments: &[&str], context: &Context) -> Result<T> {
    let answer = coprocess::ask_each("cp-session", arguments, b"", context.handed_on(), &mut |_| Ok(()))?;
    for notice in answer.notices() {
        context.warn(&format!("cp-session: {notice}"));
    }
    Ok(answer.data)
}

/// The number of leading turns that cannot begin a conversation: answers, and tool results without their calls.
pub(crate) fn unfit_beginning(turns: &[Turn]) -> usize {
    turns.iter().position(Turn::is_question).unwrap_or(turns.len())
}

/// Drops the oldest rounds until the prompt fits. New turns are not dropped: it is an error if they do not fit.
pub(crate) fn fit(prompt: &mut Prompt, limit: usize, account: &mut Account) -> Result<()> {
    let mut sizes = Vec::with_capacity(prompt.messages.len());
    for turn in &prompt.messages {
        sizes.push(turn.size()?);
    }
    let mut bytes = prompt.system.as_ref().map_or(0, String::len) + sizes.iter().sum::<usize>();
    let mut cut = 0;
    while cut < prompt.history && estimated_tokens(bytes) > limit {
        // A whole round is dropped, because a conversation must begin with a question.
        bytes -= sizes[cut];
        cut += 1;
        while cut < prompt.history && !prompt.messages[cut].is_question() {
            bytes -= sizes[cut];
            cut += 1;
        }
    }
    if estimated_tokens(bytes) > limit {
        return Err(Error::validation(format!(
            "too large: about {} tokens without any history, the limit is {limit}",
            estimated_tokens(bytes)
        ))
        .with("estimated_tokens", estimated_tokens(bytes))
        .hint("send less context, or raise --fit-tokens"));
    }
    prompt.messages.drain(..cut);
    prompt.history -= cut;
    account.dropped("turns", cut, format!("--fit-tokens {limit}, estimated"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use cp_common::wire::{Block, Content};

    use super::*;

    #[test]
    fn conversation_begins_with_question() {
        let result = Turn::of("user", Content::Blocks(vec![Block::tool_result("1", "x", false)]));
        let turns = [Turn::text("assistant", "a"), result, Turn::text("assistant", "b"), Turn::text("user", "c")];
        assert_eq!(unfit_beginning(&turns), 3);
        assert_eq!(unfit_beginning(&turns[..3]), 3);
        assert_eq!(unfit_beginning(&turns[3..]), 0);
        assert_eq!(unfit_beginning(&[]), 0);
    }

    fn prompt() -> Prompt {
        let turns = ["user", "assistant", "user", "assistant", "user"].map(|role| Turn::text(role, &"x".repeat(100)));
        Prompt { messages: turns.to_vec(), history: 4, ..Prompt::default() }
    }

    #[test]
    fn fit_drops_whole_rounds_and_keeps_new_turn() {
        let (mut prompt, mut account) = (prompt(), Account::default());
        fit(&mut prompt, 120, &mut account).unwrap();
        assert_eq!((prompt.messages.len(), prompt.history), (3, 2));
        assert_eq!(account.dropped[0].count, 2);
        assert!(fit(&mut prompt, 10, &mut account).is_err());
    }

    #[test]
    fn fit_keeps_prompt_within_limit() {
        let (mut prompt, mut account) = (prompt(), Account::default());
        fit(&mut prompt, 1000, &mut account).unwrap();
        assert_eq!((prompt.messages.len(), account.dropped.len()), (5, 0));
        // Only the part of a block that is sent counts.
        let thinking = "x".repeat(4000);
        let block = serde_json::json!({"type": "thinking", "thinking": thinking, "raw": {"signature": "s"}});
        prompt.messages[1].blocks = vec![serde_json::from_value(block).unwrap()];
        fit(&mut prompt, 200, &mut account).unwrap();
        assert_eq!(prompt.messages.len(), 5);
    }
}
