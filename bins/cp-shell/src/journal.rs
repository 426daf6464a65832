//! The session's ledgers: every turn on the exec ledger and on the evidence ledger, before it is answered.

use std::path::{Path, PathBuf};

use cp_common::clock;
use cp_common::wire::Receipt;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::{Entry, Ledger};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use crate::parts::ask;
use crate::plane::Read;
use crate::plane::canonical::hash_value;

/// The most of a command that stands in an entry; its hash is of all of it.
const SHOWN: usize = 16 << 10;

/// A turn that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    /// What was asked, as it was asked.
    pub(crate) command: &'a str,
    /// The hash of what was asked: of the request, or of `{"cmd": …}` where a person typed it.
    pub(crate) command_hash: &'a str,
    /// The hash of what came of it.
    pub(crate) result_hash: &'a str,
    /// Whether it was fine.
    pub(crate) fine: bool,
    /// How long it took.
    pub(crate) duration_ms: u64,
    /// What was read.
    pub(crate) reads: &'a [Read],
    /// What was written.
    pub(crate) writes: &'a [Read],
    /// What was called: programs, services.
    pub(crate) calls: &'a [Value],
}

/// A turn that waits for its number.
#[derive(Debug)]
struct Pending {
    timestamp: String,
    command: String,
    command_hash: String,
    result_hash: String,
    fine: bool,
    duration_ms: u64,
    reads: Vec<Read>,
    writes: Vec<Read>,
    calls: Vec<Value>,
}

/// An entry of the exec ledger, as the control plane's readers know it.
#[derive(Serialize)]
struct Executed<'a> {
    event_type: &'static str,
    session_id: &'a str,
    turn_number: u64,
    timestamp: &'a str,
    command: &'a str,
    command_hash: &'a str,
    result_hash: &'a str,
    status: &'static str,
}

/// An entry of the evidence ledger.
#[derive(Serialize)]
struct Proven<'a> {
    turn_evidence: TurnEvidence<'a>,
    declared_reads: &'a [Read],
    declared_writes: &'a [Read],
    external_calls: &'a [Value],
}

#[derive(Serialize)]
struct TurnEvidence<'a> {
    session_id: &'a str,
    turn_number: u64,
    timestamp: &'a str,
    input_hash: &'a str,
    output_hash: &'a str,
    duration_ms: u64,
}

impl Pending {
    fn executed<'a>(&'a self, session_id: &'a str, turn_number: u64) -> Executed<'a> {
        Executed {
            event_type: "agent_turn",
            session_id,
            turn_number,
            timestamp: &self.timestamp,
            command: &self.command,
            command_hash: &self.command_hash,
            result_hash: &self.result_hash,
            status: if self.fine { "ok" } else { "error" },
        }
    }

    fn proven<'a>(&'a self, session_id: &'a str, turn_number: u64) -> Proven<'a> {
        let turn_evidence = TurnEvidence {
            session_id,
            turn_number,
            timestamp: &self.timestamp,
            input_hash: &self.command_hash,
            output_hash: &self.result_hash,
            duration_ms: self.duration_ms,
        };
        Proven {
            turn_evidence,
            declared_reads: &self.reads,
            declared_writes: &self.writes,
            external_calls: &self.calls,
        }
    }
}

/// The ledgers of a session that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    session: String,
    directory: PathBuf,
    agent: String,
    exec: Ledger,
    evidence: Ledger,
    pending: Vec<Pending>,
    /// The number of the last turn on the record.
    turn: u64,
    /// Where our next entry comes if nobody else writes before.
    next_place: Option<u64>,
    /// Whether we started the session, and so end it.
    own: bool,
}

impl Journal {
    /// Joins the session that is named, else starts one. From here on the context names it.
    pub(crate) fn open(context: &mut Context, agent: &str) -> Result<Self> {
        let own = context.session().is_none();
        if own {
            // A program that is an agent has no soul in the home that a session could name.
            let known = if agent.contains('/') { "default" } else { agent };
            let started = ask(context, "cp-session", &["start", "--agent", known])?;
            let session = started["session_id"].as_str().unwrap_or_default();
            context.options.session = Some(session.to_owned());
        }
        if !own {
            must_be_open(context)?;
        }
        let directory = cp_ledger::home::session_directory(context)?
            .ok_or_else(|| Error::new(Code::Unknown, "the session that was started has no place"))?;
        let session = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let exec = cp_ledger::effect_ledger(context, "cp-exec.jsonl")?;
        let evidence = cp_ledger::effect_ledger(context, "cp-evidence.jsonl")?;
        let turn = if own { 0 } else { last_turn(exec.path(), &session)? };
        let agent = agent.to_owned();
        Ok(Self { session, directory, agent, exec, evidence, pending: Vec::new(), turn, next_place: None, own })
    }

    /// The id of the session.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Where its files lie.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// How many turns it has.
    pub(crate) fn turns(&self) -> u64 {
        self.turn
    }

    /// Gets a turn ready for the record.
    pub(crate) fn stage(&mut self, turn: &Turn<'_>) {
        // The hash of a secret tells the secret to who can guess it: the hash is then of what the ledger shows.
        let (mut command, redactions) = self.exec.redactor().redact_text(turn.command);
        let command_hash = match redactions {
            0 => turn.command_hash.to_owned(),
            _ => hash_value(&json!({"cmd": command})),
        };
        command.truncate(command.floor_char_boundary(SHOWN));
        self.pending.push(Pending {
            timestamp: clock::now(),
            command,
            command_hash,
            result_hash: turn.result_hash.to_owned(),
            fine: turn.fine,
            duration_ms: turn.duration_ms,
            reads: turn.reads.to_vec(),
            writes: turn.writes.to_vec(),
            calls: turn.calls.to_vec(),
        });
    }

    /// Puts what is ready on the record, and gives the proof of the last turn.
    pub(crate) fn commit(&mut self) -> Result<Option<Receipt>> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        let pending = std::mem::take(&mut self.pending);
        let Self { session, agent, exec, evidence, turn, next_place, .. } = self;
        let entry = |event: &str, number: u64| Entry::new(event).agent(&*agent).session(&*session).turn(number);
        let ledger = exec.path().to_owned();
        let receipts = exec.append_placed(|place| {
            // Others may have written since: the numbers that they took are not ours.
            if *next_place != Some(place) {
                *turn = last_turn(&ledger, session)?.max(*turn);
            }
            let numbered = (*turn + 1..).zip(&pending);
            Ok(numbered.map(|(number, it)| entry("agent_turn", number).data(&it.executed(session, number))).collect())
        })?;
        let numbered = (*turn + 1..).zip(&pending);
        let proven = numbered.map(|(number, it)| entry("turn_evidence", number).data(&it.proven(session, number)));
        evidence.append_all(proven.collect())?;
        *turn += pending.len() as u64;
        let last = receipts.into_iter().next_back();
        *next_place = last.as_ref().map(|receipt| receipt.seq + 1);
        Ok(last)
    }

    /// Puts a turn on the record.
    pub(crate) fn record(&mut self, turn: &Turn<'_>) -> Result<()> {
        self.stage(turn);
        self.commit().map(|_| ())
    }

    /// Whether everything that was recorded is on the disk.
    pub(crate) fn synced(&mut self) -> bool {
        self.commit().and_then(|_| self.exec.sync()).and_then(|()| self.evidence.sync()).is_ok()
    }

    /// Ends the session if we started it.
    pub(crate) fn end(mut self, context: &Context) -> Result<()> {
        self.commit()?;
        self.exec.sync()?;
        self.evidence.sync()?;
        if self.own {
            ask(context, "cp-session", &["end"])?;
        }
        Ok(())
    }
}

/// Refuses to join a session that has ended.
fn must_be_open(context: &Context) -> Result<()> {
    let shown = ask(context, "cp-session", &["show"])?;
    if shown["ended"] != true {
        return Ok(());
    }
    let id = shown["session_id"].as_str().unwrap_or_default();
    Err(Error::new(Code::Conflict, format!("the session {id} has ended"))
        .with("session", id)
        .hint("leave --session out for a new one, or go on with `cp-session fork`"))
}

/// The number of the last turn of a session that a ledger has.
fn last_turn(ledger: &Path, session: &str) -> Result<u64> {
    let session = Value::from(session).to_string();
    let mut lines = cp_ledger::read::backward(ledger)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored().filter(|line| line.is_event("agent_turn")) else { continue };
        if line.member("session") == Some(session.as_bytes()) {
            let turn = line.member("turn").and_then(|turn| std::str::from_utf8(turn).ok()?.parse().ok());
            return Ok(turn.unwrap_or_default());
        }
    }
    Ok(0)
}
