//! The conversation of an interactive session, in memory and in its ledger `session.jsonl`: its initial context, and
//! both sides and the end of every turn. [`Digest`] is what the ledger tells about a session.

use std::path::Path;

use cp_common::wire::{Message, Turn};
use cp_common::{Context, Result};
use cp_ledger::blob;
use cp_ledger::{Entry, Ledger, Sync};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent;
use crate::interactive::risk::{self, Hint, Risk};

/// The mark at the end of an interrupted answer.
const INTERRUPTED: &str = " [interrupted]";

/// The mark at the end of an answer whose tool calls were not carried out. A provider refuses a call without a result.
const CALLED: &str = " [called without effect: ";

/// The entry that closes a turn.
const TURN: &str = "session_turn";
/// The entry that keeps the question until the turn is closed.
const QUESTION: &str = "session_question";
/// The entry after the files of a run were put back.
pub(crate) const UNDONE: &str = "session_undone";

/// A turn of the person, its context, and its answer.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) number: u64,
    /// The text as it was typed.
    pub(crate) text: String,
    /// What the agent is asked.
    pub(crate) asked: agent::Turn,
    pub(crate) agent: String,
    pub(crate) risk: Risk,
    pub(crate) hints: Vec<Hint>,
    pub(crate) recalled: Vec<Remembered>,
    /// The number of secrets that were removed from the context, and in the end from the whole turn.
    pub(crate) redactions: u32,
    /// True if the person confirmed the turn.
    pub(crate) confirmed: bool,
    pub(crate) end: End,
    /// Why it was not answered, if it failed.
    pub(crate) error: String,
    /// The messages of the model; empty if the turn was cancelled or failed.
    pub(crate) messages: Vec<Message>,
    /// The part of an interrupted answer that had arrived.
    pub(crate) partial: String,
    /// The run of the tool loop, if the model used tools.
    pub(crate) run: Option<String>,
}

/// A memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// The kind.
    pub(crate) kind: String,
    pub(crate) text: String,
    /// The time when it was stored.
    pub(crate) at: String,
}

/// The end of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    NotSent,
    Answered,
    /// The person stopped the answer. The turn stays in the conversation with a mark.
    Interrupted,
    Failed,
}

impl Exchange {
    /// The text of the answer.
    pub(crate) fn words(&self) -> String {
        self.messages.last().map(|message| message.content.text()).unwrap_or_default()
    }

    /// The turns to add to the conversation.
    fn turns(&self) -> Vec<Turn> {
        let question = Turn::text("user", &self.asked.text);
        match self.messages.as_slice() {
            [] if self.end == End::Interrupted => {
                let stopped = format!("{}{INTERRUPTED}", self.partial);
                vec![question, Turn::text("assistant", stopped.trim_start())]
            }
            [] => Vec::new(),
            messages => conversation(question, messages),
        }
    }
}

/// Closes a question whose shell was killed before the answer. It stays in the conversation as an interrupted turn.
pub(crate) fn close_question(agent: &str, context: &Context) -> Result<()> {
    let Some(directory) = cp_ledger::home::session_directory(context)? else { return Ok(()) };
    let file = directory.join("session.jsonl");
    let newest = cp_ledger::read::newest(&file, |line| {
        let member = |name: &str| line.member(name).unwrap_or(b"null").to_vec();
        let is_open = line.is_event(QUESTION);
        (is_open || line.is_event(TURN)).then(|| is_open.then(|| (member("content"), member("turn"))))
    })?;
    let Some((kept, turn)) = newest.flatten() else { return Ok(()) };
    let whole = blob::resolve(&file, &kept)?.unwrap_or(kept);
    let question: String = serde_json::from_slice(&whole).unwrap_or_default();
    let session = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (risk, end) = (risk::classify(&question), End::Interrupted);
    let asked = agent::Turn { text: question, ..agent::Turn::default() };
    let number = serde_json::from_slice(&turn).unwrap_or_default();
    let closed = Exchange { number, asked, risk, end, ..Exchange::default() };
    Transcript::open(&directory, &session, agent)?.close(&closed).map(drop)
}

#[derive(Debug)]
pub(crate) struct Transcript {
    ledger: Ledger,
    session: String,
    /// The id of the agent that answers.
    pub(crate) agent: String,
}

impl Transcript {
    /// Opens the ledger of a session.
    pub(crate) fn open(directory: &Path, session: &str, agent: &str) -> Result<Self> {
        let ledger = Ledger::open(&directory.join("session.jsonl"), Sync::Line)?;
        Ok(Self { ledger, session: session.to_owned(), agent: agent.to_owned() })
    }

    /// Records a switch to another agent.
    pub(crate) fn switch_agent(&mut self, agent: &str) -> Result<()> {
        agent.clone_into(&mut self.agent);
        self.note("session_agent", &json!({"agent": agent}))
    }

    /// Appends an entry.
    pub(crate) fn note(&mut self, event: &str, data: &impl Serialize) -> Result<()> {
        let entry = Entry::new(event).agent(&self.agent).session(&self.session).data(data);
        self.ledger.append(entry).map(|_| ())
    }

    /// Appends the error of a turn.
    pub(crate) fn error(&mut self, error: &Value) -> Result<()> {
        let entry = Entry::new("error").agent(&self.agent).session(&self.session).error(error);
        self.ledger.append(entry).map(drop)
    }

    /// Records the question before it is answered, so that it is not lost if the shell is killed.
    pub(crate) fn question(&mut self, number: u64, question: &str) -> Result<()> {
        let entry = Entry::new(QUESTION).agent(&self.agent).session(&self.session).turn(number).content(question);
        self.ledger.append(entry).map(drop)
    }

    /// Records a turn with both sides and its end. Returns the number of removed secrets.
    pub(crate) fn close(&mut self, turn: &Exchange) -> Result<u32> {
        let turns = turn.turns();
        let redactor = Redactor::from_environment();
        let removed = if turns.is_empty() {
            [&turn.asked.text, &turn.partial].iter().map(|text| redactor.redact_text(text).1).sum()
        } else {
            redactor.redact(&mut serde_json::to_vec(&turns).unwrap_or_default(), 0)
        };
        let redactions = turn.redactions + removed;
        let (agent, session) = (&self.agent, &self.session);
        self.ledger.append_placed(|first| {
            let number = |at: usize| first + at as u64;
            let message = |said: &Turn| {
                let entry = Entry::new("message").session(session).turn(turn.number).role(&said.role);
                let entry = entry.content(&said.content);
                let entry = if said.blocks.is_empty() { entry } else { entry.with("blocks", &said.blocks) };
                if said.role == "assistant" { entry.agent(agent) } else { entry }
            };
            let mut closing = json!({
                "user_seq": (!turns.is_empty()).then(|| number(0)),
                "assistant_seq": turns.iter().rposition(|turn| turn.role == "assistant").map(number),
                "risk": turn.risk.level.name(),
                "risk_reason": turn.risk.reason,
                "cancelled": matches!(turn.end, End::NotSent | End::Interrupted),
                "dry_run": false,
                "hints": turn.hints.iter().map(|hint| hint.rule).collect::<Vec<_>>(),
                "redactions": redactions,
                "recalled": turn.recalled.len(),
            });
            let model = turn.messages.last().map(|message| &message.model);
            // The question is here if it is not a part of the conversation.
            let user = turns.is_empty().then_some(&turn.asked.text);
            let partial = Some(&turn.partial).filter(|partial| !partial.is_empty());
            for (name, member) in [("user", user), ("partial", partial), ("model", model), ("run", turn.run.as_ref())] {
                if let Some(text) = member {
                    closing[name] = text.as_str().into();
                }
            }
            let closing = Entry::new(TURN).agent(agent).session(session).turn(turn.number).data(&closing);
            Ok(turns.iter().map(message).chain([closing]).collect())
        })?;
        Ok(redactions)
    }
}

/// The turns of the conversation: the question without its context, and each message with its tool results.
fn conversation(question: Turn, messages: &[Message]) -> Vec<Turn> {
    let mut turns = vec![question];
    for (at, message) in messages.iter().enumerate() {
        if at > 0 {
            turns.extend(message.input.iter().cloned());
        }
        turns.push(message.turn());
    }
    let called = called_without_effect(messages);
    if let Some(last) = turns.last_mut().filter(|_| !called.is_empty()) {
        let text = format!("{}{CALLED}{}]", last.content.text(), called.join(", "));
        *last = Turn::text("assistant", text.trim_start());
    }
    turns
}

/// The tools that the last message calls. There are none in a session with tools, where the last message is the answer.
pub(crate) fn called_without_effect(messages: &[Message]) -> Vec<&str> {
    let calls = messages.last().into_iter().flat_map(|message| &message.tool_calls);
    calls.map(|call| call.name.as_str()).collect()
}

/// What the ledger tells about a session.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    /// The number of the last turn.
    pub(crate) turns: u64,
    /// The tool runs whose files were not put back, the newest last.
    pub(crate) runs: Vec<String>,
    /// The last run whose files were put back.
    pub(crate) undone: Option<String>,
}

/// The members of the entry that closes a turn, or that tells that a run was put back.
#[derive(Deserialize)]
struct Closing {
    run: Option<String>,
}

impl Digest {
    /// Reads the ledger in a session's directory.
    pub(crate) fn of(directory: &Path) -> Result<Self> {
        let mut digest = Self::default();
        let mut lines = cp_ledger::read::lines(&directory.join("session.jsonl"))?;
        while let Some(raw) = lines.next()? {
            let Some(line) = raw.stored() else { continue };
            let data = || serde_json::from_slice(line.member("data")?).ok();
            if line.is_event(TURN) {
                let number = line.member("turn").and_then(|turn| serde_json::from_slice(turn).ok());
                digest.turns = digest.turns.max(number.unwrap_or_default());
                digest.runs.extend(data().and_then(|Closing { run }| run));
            } else if line.is_event(UNDONE) {
                digest.undone = data().and_then(|Closing { run }| run);
                digest.runs.retain(|run| Some(run) != digest.undone.as_ref());
            }
        }
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn message(value: &Value) -> Message {
        let mut whole = json!({"id": "m", "role": "assistant", "model": "x", "backend": "stub", "stop_reason": "end_turn", "usage": {}});
        whole.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn tool_loop_turns_alternate_and_keep_calls() {
        let messages = [
            message(&json!({"content": "", "tool_calls": [{"id": "1", "name": "f", "input": {}}],
                "blocks": [{"type": "thinking", "thinking": "hm"}],
                "input": [{"role": "user", "content": "<context>…</context> do it"}]})),
            message(
                &json!({"content": "done", "input": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}]}]}),
            ),
        ];
        let turns = conversation(Turn::text("user", "do it"), &messages);
        let roles: Vec<&str> = turns.iter().map(|turn| turn.role.as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
        assert_eq!(turns[0].content.text(), "do it");
        assert!(serde_json::to_string(&turns[1]).unwrap().contains("tool_use"));
        assert_eq!(turns[1].blocks.len(), 1);
    }
}
