//! The sessions of cp-shell: a turn on the exec ledger, its evidence, its question and answer in the conversation, and the command that it ran.

mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use cp_common::Result;
use cp_common::wire;
use cp_ledger::format::canonical::hash_value;
use cp_ledger::format::line::Hash;
use serde_json::{Value, json};

use crate::audit::check::Check;
use crate::audit::claim::{Claims, Entry, Source, Verdict};

/// The sessions of all ledgers that are read.
#[derive(Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<String, Session>,
    /// The messages of each ledger since its first line.
    messages: HashMap<PathBuf, u64>,
    /// Refusals and failures of cp-exec.
    refused: BTreeSet<(PathBuf, u64)>,
}

/// The entries of one session.
#[derive(Default)]
struct Session {
    turns: BTreeMap<u64, Turn>,
    evidence: BTreeMap<u64, Turn>,
    rounds: Vec<Round>,
    /// The question that has no answer yet, and the messages after the last round.
    question: Option<Content>,
    messages: Vec<Content>,
    /// Starts of a shell, and the ends of the session: true for an end.
    marks: BTreeSet<(String, bool)>,
    commands: Vec<Command>,
    has_conversation: bool,
}

/// A turn as one of its two ledgers has it.
#[derive(Clone)]
struct Turn {
    source: Source,
    ts: String,
    output: Option<String>,
    is_redacted: bool,
    /// The members that are the same on both ledgers.
    common: [Option<String>; 4],
    /// On the exec ledger: the line of the person, and true if it succeeded.
    command: String,
    is_ok: bool,
    /// On the evidence ledger: the calls of the turn.
    calls: Vec<Value>,
}

/// A question or a message of the conversation.
struct Content {
    seq: u64,
    turn: Option<u64>,
    agent: Option<String>,
    role: Option<String>,
    words: String,
    is_redacted: bool,
}

/// A question with its answer.
struct Round {
    source: Source,
    ts: String,
    question: String,
    /// The hash of the result with this answer.
    output: String,
    model: Option<String>,
    /// True if a secret was taken out of the question, and out of the answer.
    is_redacted: [bool; 2],
    is_matched: bool,
}

/// A command of cp-exec.
struct Command {
    ledger: PathBuf,
    seq: u64,
    line: String,
    is_matched: bool,
    /// The exit status: null until the command has a result.
    status: Value,
}

impl Sessions {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let messages = self.messages.entry(entry.ledger.to_owned()).or_default();
        match entry.event.as_str() {
            "ledger.open" | "segment.open" => *messages = 0,
            "message" => *messages += 1,
            "exec.refused" => drop(self.refused.insert((entry.ledger.to_owned(), entry.seq))),
            "error" if entry.text("program") == Some("cp-exec") => {
                self.refused.insert((entry.ledger.to_owned(), entry.seq));
            }
            "session_end" | "session_resumed" => {
                let mut check = Check::of(entry);
                check.same("the number of messages", entry.number("turns"), Some(*messages));
                check.that(entry.session.is_some(), || "it has no session".to_owned());
                claims.record(entry.source(), "conversation", check.verdict())?;
            }
            _ => {}
        }
        let Some(name) = entry.session.as_ref().filter(|_| entry.run.is_none()) else { return Ok(()) };
        if let Some(owner) = session_of(entry.ledger).filter(|owner| owner != name) {
            let why = format!("it belongs to the session {name}, and its ledger to {owner}");
            claims.record(entry.source(), "conversation", Verdict::Broken(why))?;
        }
        let session = self.by_id.entry(name.clone()).or_default();
        match entry.event.as_str() {
            "agent_turn" | "turn_evidence" => return session.turn(entry, claims),
            "session_turn" => return session.round(entry, claims),
            "session_question" => session.question = Some(Content::of(entry)),
            "message" => session.messages.push(Content::of(entry)),
            "session_start" | "session_history" | "session_resumed" | "session_end" => {
                session.has_conversation = true;
                session.marks.insert((entry.ts.clone(), entry.event == "session_end"));
            }
            "exec.intent" => session.commands.push(Command {
                ledger: entry.ledger.to_owned(),
                seq: entry.seq,
                line: entry.text("line").unwrap_or_default().to_owned(),
                is_matched: false,
                status: Value::Null,
            }),
            "exec.result" => {
                let status = entry.number("return_code").or(entry.number("signal").map(|signal| 128 + signal));
                let is_it = |command: &&mut Command| Some(command.seq) == entry.number("intent");
                if let Some(command) = session.commands.iter_mut().rev().find(is_it) {
                    command.status = status.into();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Judges the turns after all entries were read.
    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        self.by_id.into_iter().try_for_each(|(name, session)| session.finish(&name, &self.refused, claims))
    }
}

/// The session in whose directory a ledger is.
fn session_of(ledger: &Path) -> Option<&str> {
    let parent = ledger.parent()?;
    let directory = if parent.ends_with("ledger") { parent.parent()? } else { parent };
    directory.file_name()?.to_str().filter(|name| name.starts_with("SES-"))
}

impl Content {
    fn of(entry: &Entry<'_>) -> Self {
        let content = serde_json::from_value::<wire::Content>(entry.content.clone()).unwrap_or_default();
        let (turn, agent, role) = (entry.turn, entry.agent.clone(), entry.role.clone());
        Self { seq: entry.seq, turn, agent, role, words: content.text(), is_redacted: entry.is_redacted() }
    }
}

impl Session {
    fn turn(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let is_evidence = entry.event == "turn_evidence";
        let data = if is_evidence { entry.data.get("turn_evidence") } else { None };
        let of_data = |name: &str| match data {
            Some(data) => data.get(name).cloned(),
            None => entry.data.get(name).cloned(),
        };
        let text = |name: &str| of_data(name).and_then(|value| value.as_str().map(str::to_owned));
        let (input, output) = if is_evidence { ("input", "output_hash") } else { ("command", "result_hash") };
        let keyed = text(&format!("{input}_hmac"));
        let turn = Turn {
            source: entry.source(),
            ts: entry.ts.clone(),
            is_redacted: keyed.is_some() || entry.is_redacted(),
            output: text(output),
            common: [text(&format!("{input}_hash")).or(keyed), text(output), text("timestamp"), entry.agent.clone()],
            command: text("command").unwrap_or_default(),
            is_ok: text("status").as_deref() == Some("ok"),
            calls: entry.data.get("external_calls").and_then(Value::as_array).cloned().unwrap_or_default(),
        };
        let number = of_data("turn_number").and_then(|number| number.as_u64());
        let turns = if is_evidence { &mut self.evidence } else { &mut self.turns };
        let mut check = Check::of(entry);
        check.same("turn", entry.turn, number);
        check.same("session_id", text("session_id").as_ref(), entry.session.as_ref());
        if is_evidence {
            let calls = entry.data.get("external_calls").and_then(Value::as_array);
            let is_list = calls.is_some_and(|calls| calls.iter().all(Value::is_object));
            check.that(is_list, || "its calls are not a list of objects".to_owned());
        } else {
            check.same("event_type", entry.text("event_type"), Some("agent_turn"));
            let status = entry.text("status").unwrap_or("null");
            check.that(["ok", "error"].contains(&status), || format!("the status is {status}"));
            let hash = turn.output.as_deref().unwrap_or("null");
            check.that(Hash::parse(hash).is_some(), || format!("`{hash}` is not a hash"));
            // Numbers are given under the lock of this ledger.
            let last = turns.last_key_value().map_or(0, |(last, _)| *last);
            check.that(number >= Some(last), || format!("it is recorded after turn {last}"));
        }
        let number = number.or(entry.turn).unwrap_or_default();
        check.that(turns.insert(number, turn).is_none(), || format!("turn {number} is there twice"));
        claims.record(entry.source(), "turn", check.verdict())
    }

    /// Judges the end of a question, and keeps the question with its answer.
    fn round(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let (asked, messages) = (self.question.take(), std::mem::take(&mut self.messages));
        let is_redacted = messages.iter().chain(&asked).any(|text| text.is_redacted) || entry.is_redacted();
        let mut check = Check::new(is_redacted);
        let mut message = |role: &str| {
            let seq = entry.number(&format!("{role}_seq"))?;
            let found = messages.iter().find(|text| text.seq == seq && text.role.as_deref() == Some(role));
            check.that(found.is_some(), || format!("line {seq} is not the message of the {role}"));
            found
        };
        let (user, assistant) = (message("user"), message("assistant"));
        let question = user.map(|user| user.words.as_str()).or(entry.text("user"));
        let cancelled = entry.data.get("cancelled").and_then(Value::as_bool);
        if let Some(asked) = &asked {
            check.text("the question", question, Some(asked.words.as_str()));
            check.that(cancelled.is_some(), || "it does not say if it was cancelled".to_owned());
            for text in [Some(asked), user, assistant].into_iter().flatten() {
                check.same("turn", text.turn, entry.turn);
                // The person has no agent.
                check.that(text.agent.is_none() || text.agent == entry.agent, || "another agent answered".to_owned());
            }
            check.that(asked.agent.is_some() && assistant.is_none_or(|text| text.agent.is_some()), || {
                "it has no agent".to_owned()
            });
        }
        claims.record(entry.source(), "conversation", check.verdict())?;
        // Other programs append rounds without a question before them, and have no turns.
        if let Some(answer) = assistant.filter(|_| asked.is_some() && cancelled == Some(false)) {
            self.rounds.push(Round {
                source: entry.source(),
                ts: entry.ts.clone(),
                question: question.unwrap_or_default().to_owned(),
                output: hash_value(&json!({ "content": answer.words })),
                model: entry.text("model").map(str::to_owned),
                is_redacted: [is_redacted, answer.is_redacted],
                is_matched: false,
            });
        }
        Ok(())
    }
}
