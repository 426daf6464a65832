//! The transcript of an interactive session in its ledger `session.jsonl`: its initial context, and both sides and the result of every
//! turn.

use std::path::Path;

use cp_common::wire::{Message, Turn};
use cp_common::{Context, Result};
use cp_ledger::store::blob;
use cp_ledger::{Entry, Ledger, Sync};
use serde::Serialize;
use serde_json::json;

use crate::interactive::assessment::hints::Hint;
use crate::interactive::assessment::risk::{self, Risk};

/// The mark at the end of an interrupted answer.
const INTERRUPTED: &str = " [interrupted]";

/// The mark at the end of an answer whose tool calls were not carried out. A provider refuses a call without a result.
const CALLED: &str = " [called without effect: ";

/// The entry that closes a turn.
pub(crate) const TURN: &str = "session_turn";
/// The entry that keeps the question until the turn is closed.
const QUESTION: &str = "session_question";

/// Closes a question whose shell was killed before the answer. It stays in the conversation as an interrupted turn.
pub(crate) fn close_question(agent: &str, context: &Context) -> Result<()> {
    let Some(directory) = cp_ledger::home::session_directory(context)? else { return Ok(()) };
    let file = directory.join("session.jsonl");
    let mut lines = cp_ledger::read::backward(&file)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored().filter(|line| line.is_event(QUESTION) || line.is_event(TURN)) else { continue };
        if line.is_event(TURN) {
            return Ok(());
        }
        let kept = line.member("content").unwrap_or(b"\"\"");
        let whole = blob::resolve(&file, kept)?;
        let question: String = serde_json::from_slice(whole.as_deref().unwrap_or(kept)).unwrap_or_default();
        let number = line.member("turn").and_then(|turn| serde_json::from_slice(turn).ok()).unwrap_or_default();
        let session = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let risk = risk::classify(&question);
        let closed = Closed { cancelled: true, interrupted: true, ..Closed::new(number, &question, &risk) };
        return Transcript::open(&directory, &session, agent)?.turn(&closed).map(drop);
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Transcript {
    ledger: Ledger,
    session: String,
    agent: String,
}

/// A closed turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed<'a> {
    pub(crate) number: u64,
    /// The text of the person.
    pub(crate) question: &'a str,
    /// The messages of the model; empty if the turn was cancelled or failed.
    pub(crate) messages: &'a [Message],
    /// The risk.
    pub(crate) risk: &'a Risk,
    /// The hints.
    pub(crate) hints: &'a [Hint],
    /// True if the turn was not sent, or was stopped.
    pub(crate) cancelled: bool,
    /// The part of the answer that had arrived.
    pub(crate) partial: &'a str,
    /// True if the person stopped the answer. The turn stays in the conversation with a mark.
    pub(crate) interrupted: bool,
    /// The run of the tool loop, if the model used tools.
    pub(crate) run: Option<&'a str>,
    /// The number of recalled memories.
    pub(crate) recalled: usize,
    /// The number of secrets that were removed from the context.
    pub(crate) attached: u32,
}

/// The `data` of the entry that closes a turn.
#[derive(Serialize)]
struct Closing<'a> {
    user_seq: Option<u64>,
    assistant_seq: Option<u64>,
    risk: &'a str,
    risk_reason: &'a str,
    cancelled: bool,
    dry_run: bool,
    hints: Vec<&'a str>,
    redactions: u32,
    recalled: usize,
    /// The question, if it is not a part of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    partial: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
}

impl Transcript {
    /// Opens the ledger of a session.
    pub(crate) fn open(directory: &Path, session: &str, agent: &str) -> Result<Self> {
        let ledger = Ledger::open(&directory.join("session.jsonl"), Sync::Line)?;
        Ok(Self { ledger, session: session.to_owned(), agent: agent.to_owned() })
    }

    /// The id of the agent that answers.
    pub(crate) fn agent(&self) -> &str {
        &self.agent
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

    /// Records the question before it is answered, so that it is not lost if the shell is killed.
    pub(crate) fn question(&mut self, number: u64, question: &str) -> Result<()> {
        let entry = Entry::new(QUESTION).agent(&self.agent).session(&self.session).turn(number).content(question);
        self.ledger.append(entry).map(drop)
    }

    /// Records a turn with both sides and its result. Returns the number of removed secrets.
    pub(crate) fn turn(&mut self, closed: &Closed<'_>) -> Result<u32> {
        let turns = closed.turns();
        let redactions = closed.attached + {
            let redactor = self.ledger.redactor();
            let mut all = serde_json::to_vec(&turns).unwrap_or_default();
            if turns.is_empty() {
                [closed.question, closed.partial].iter().map(|text| redactor.redact_text(text).1).sum()
            } else {
                redactor.redact(&mut all, 0)
            }
        };
        let (agent, session) = (&self.agent, &self.session);
        self.ledger.append_placed(|first| {
            let number = |at: usize| first + at as u64;
            let mut entries: Vec<Entry> = turns
                .iter()
                .map(|turn| {
                    let entry = Entry::new("message")
                        .session(session)
                        .turn(closed.number)
                        .role(&turn.role)
                        .content(&turn.content);
                    let entry = if turn.blocks.is_empty() { entry } else { entry.with("blocks", &turn.blocks) };
                    if turn.role == "assistant" { entry.agent(agent) } else { entry }
                })
                .collect();
            let closing = Closing {
                user_seq: (!turns.is_empty()).then(|| number(0)),
                assistant_seq: turns.iter().rposition(|turn| turn.role == "assistant").map(number),
                risk: closed.risk.level.name(),
                risk_reason: &closed.risk.reason,
                cancelled: closed.cancelled,
                dry_run: false,
                hints: closed.hints.iter().map(|hint| hint.rule).collect(),
                redactions,
                recalled: closed.recalled,
                user: turns.is_empty().then_some(closed.question),
                partial: closed.partial,
                model: closed.messages.last().map(|message| message.model.as_str()),
                run: closed.run,
            };
            entries.push(Entry::new(TURN).agent(agent).session(session).turn(closed.number).data(&closing));
            Ok(entries)
        })?;
        Ok(redactions)
    }
}

impl<'a> Closed<'a> {
    /// A turn without an answer.
    pub(crate) fn new(number: u64, question: &'a str, risk: &'a Risk) -> Self {
        let (messages, hints, partial) = (&[], &[], "");
        let (cancelled, interrupted, run, recalled, attached) = (false, false, None, 0, 0);
        Self { number, question, messages, risk, hints, cancelled, partial, interrupted, run, recalled, attached }
    }

    /// The turns to add to the conversation.
    fn turns(&self) -> Vec<Turn> {
        let question = Turn::text("user", self.question);
        match self.messages {
            [] if self.interrupted => {
                let stopped = format!("{}{INTERRUPTED}", self.partial);
                vec![question, Turn::text("assistant", stopped.trim_start())]
            }
            [] => Vec::new(),
            messages => conversation(question, messages),
        }
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

/// The text of the last message, and the number of tokens of the conversation.
pub(crate) fn last_answer(messages: &[Message]) -> (String, u64) {
    messages.last().map_or_else(Default::default, |message| (message.content.text(), message.usage.tokens()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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

    #[test]
    fn call_without_tools_becomes_mark_in_conversation() {
        let calls = json!([{"id": "1", "name": "f", "input": {}}, {"id": "2", "name": "g", "input": {}}]);
        for (content, expected) in
            [("", "[called without effect: f, g]"), ("I call.", "I call. [called without effect: f, g]")]
        {
            let blocks = json!([{"type": "tool_use", "id": "1", "name": "f", "input": {}}]);
            let called = message(&json!({"content": content, "tool_calls": calls, "blocks": blocks}));
            let turns = conversation(Turn::text("user", "do it"), &[called]);
            assert_eq!(turns.len(), 2);
            assert_eq!((turns[1].content.text().as_str(), turns[1].blocks.len()), (expected, 0));
        }
    }

    #[test]
    fn turn_has_three_entries_and_cancelled_turn_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Transcript::open(directory.path(), "SES-1", "default").unwrap();
        let risk = crate::interactive::assessment::risk::classify("hello");
        let messages = [message(&json!({"content": "hi"}))];
        let closed = Closed {
            messages: &messages,
            run: Some("RUN-1"),
            attached: 2,
            ..Closed::new(1, "hello password=hunter2hunter2", &risk)
        };
        assert_eq!(record.turn(&closed).unwrap(), 3);
        record.turn(&Closed { number: 2, messages: &[], cancelled: true, ..closed }).unwrap();
        let text = std::fs::read_to_string(directory.path().join("session.jsonl")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["ledger.open", "message", "message", "session_turn", "session_turn"]);
        assert_eq!(lines[3]["data"]["redactions"], 3);
        assert_eq!((&lines[3]["data"]["user_seq"], &lines[3]["data"]["assistant_seq"]), (&json!(1), &json!(2)));
        assert_eq!((&lines[4]["data"]["cancelled"], &lines[4]["data"]["user_seq"]), (&json!(true), &Value::Null));
        assert!(!text.contains("hunter2"));
    }
}
