//! What is known of a session's conversation in the `llm` program: which one it is, and that it has the history that we have. It is kept
//! in the session's entries on the ledger, beside each answer.

use std::path::Path;

use cp_common::keys;
use cp_common::wire::Turn;
use cp_common::{Code, Error, Result};
use cp_ledger::read;
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};

use crate::dialect::Conversation;

/// The state of a conversation after an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mirror {
    /// The program's id of the conversation.
    pub cid: String,
    /// How many answers it has.
    pub answers: u64,
    /// The hash of all its turns.
    pub turns_hash: String,
}

/// What is read of an answer's entry.
#[derive(Deserialize)]
struct Response {
    session: Option<String>,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    mirror: Option<Mirror>,
}

/// How a prompt of a session goes to the program: what is new goes into the conversation that has the rest.
pub(crate) fn conversation(turns: &[Turn], session: &str, ledger: &Path) -> Result<Conversation> {
    let new = turns.iter().rposition(|turn| turn.role == "assistant").map_or(0, |last| last + 1);
    let (history, input) = turns.split_at(new);
    let text = input.iter().map(|turn| turn.content.text()).collect::<Vec<_>>().join("\n\n");
    if history.is_empty() {
        return Ok(Conversation { cid: None, answers: 0, text });
    }
    let Some(Mirror { cid, answers, turns_hash }) = last(session, ledger)? else {
        // Another backend has answered until now.
        return Ok(Conversation { cid: None, answers: 0, text: transcript(turns) });
    };
    if turns_hash == hash(history) {
        return Ok(Conversation { cid: Some(cid), answers, text });
    }
    Err(Error::new(Code::Conflict, format!("the history is not the one that llm's conversation {cid} has"))
        .with("cid", cid)
        .with("session", session)
        .hint("give the whole history of the session, start another session, or choose another --backend"))
}

/// The state after an answer.
pub(super) fn after(cid: String, conversation: &Conversation, turns: &[Turn], answer: &str) -> Mirror {
    let turns: Vec<Turn> = turns.iter().cloned().chain([Turn::text("assistant", answer)]).collect();
    Mirror { cid, answers: conversation.answers + 1, turns_hash: hash(&turns) }
}

/// What the session's last answer of the program has left on the ledger.
fn last(session: &str, ledger: &Path) -> Result<Option<Mirror>> {
    let mut lines = match read::backward(ledger) {
        Err(e) if e.code() == Code::NotFound => return Ok(None),
        lines => lines?,
    };
    while let Some(line) = lines.next()? {
        let is_one = line.stored().is_some_and(|stored| stored.is_event("llm.response"));
        if !is_one || memchr::memmem::find(line.bytes, b"\"mirror\":{").is_none() {
            continue;
        }
        let Ok(Response { session: Some(owner), data: Data { mirror: Some(mirror) } }) =
            serde_json::from_slice(line.bytes)
        else {
            continue;
        };
        if owner == session {
            return Ok(Some(mirror));
        }
    }
    Ok(None)
}

/// The text for a program that takes one: a conversation as its turns, each with its role.
pub(super) fn transcript(turns: &[Turn]) -> String {
    match turns {
        [only] => only.content.text(),
        turns => {
            let line = |turn: &Turn| format!("{}: {}", turn.role, turn.content.text());
            turns.iter().map(line).collect::<Vec<_>>().join("\n\n")
        }
    }
}

/// The hash of turns, as the ledger has them: what a session gives back has no secrets in it.
fn hash(turns: &[Turn]) -> String {
    let redactor = Redactor::from_environment();
    let parts = turns.iter().flat_map(|turn| [turn.role.clone(), redactor.redact_text(&turn.content.text()).0]);
    keys::hash(parts.collect::<Vec<_>>().join("\n").as_bytes())
}
