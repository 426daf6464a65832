//! The session's ledgers: every turn on the exec ledger and on the evidence ledger, before it is answered.

use std::path::{Path, PathBuf};

use cp_common::keys::Key;
use cp_common::wire::Receipt;
use cp_common::{Code, Context, Error, Result, clock, coprocess};
use cp_ledger::format::claims::{self, Form};
use cp_ledger::{Entry, Ledger};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ask;
use crate::plane::Read;

/// A turn that is over.
#[derive(Debug)]
pub(crate) struct Turn {
    /// What was asked, as it was asked.
    pub(crate) command: String,
    /// What the hash of it is over.
    pub(crate) form: Form,
    /// The hash of what was asked.
    pub(crate) command_hash: String,
    pub(crate) result_hash: String,
    pub(crate) succeeded: bool,
    pub(crate) duration_ms: u64,
    pub(crate) reads: Vec<Read>,
    pub(crate) writes: Vec<Read>,
    /// The programs and services that were called.
    pub(crate) calls: Vec<Value>,
}

/// A turn that waits for its number.
#[derive(Debug)]
struct Pending {
    timestamp: String,
    turn: Turn,
    /// The keyed hash of what was asked, where a secret was taken out of it.
    hmac: Option<String>,
}

/// An entry of the exec ledger, as the control plane's readers know it.
#[derive(Serialize)]
struct Executed<'a> {
    event_type: &'static str,
    session_id: &'a str,
    turn_number: u64,
    timestamp: &'a str,
    command: &'a str,
    command_form: Form,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_hash: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_hmac: Option<&'a str>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hash: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hmac: Option<&'a str>,
    output_hash: &'a str,
    duration_ms: u64,
}

impl Pending {
    /// A hash of a secret gives it away to anyone who can guess it: then there is only the keyed one.
    fn hash(&self) -> Option<&str> {
        self.hmac.is_none().then_some(self.turn.command_hash.as_str())
    }

    fn executed<'a>(&'a self, session_id: &'a str, turn_number: u64) -> Executed<'a> {
        let Self { timestamp, turn, hmac } = self;
        Executed {
            event_type: "agent_turn",
            session_id,
            turn_number,
            timestamp,
            command: &turn.command,
            command_form: turn.form,
            command_hash: self.hash(),
            command_hmac: hmac.as_deref(),
            result_hash: &turn.result_hash,
            status: if turn.succeeded { "ok" } else { "error" },
        }
    }

    fn proven<'a>(&'a self, session_id: &'a str, turn_number: u64) -> Proven<'a> {
        let Self { timestamp, turn, hmac } = self;
        Proven {
            turn_evidence: TurnEvidence {
                session_id,
                turn_number,
                timestamp,
                input_hash: self.hash(),
                input_hmac: hmac.as_deref(),
                output_hash: &turn.result_hash,
                duration_ms: turn.duration_ms,
            },
            declared_reads: &turn.reads,
            declared_writes: &turn.writes,
            external_calls: &turn.calls,
        }
    }
}

/// A session that was named, before it is joined.
#[derive(Debug, Deserialize)]
pub(crate) struct Joined {
    session_id: String,
    /// Whether it had ended: who opens it again ends it again.
    #[serde(default)]
    ended: bool,
    #[serde(default)]
    pub(crate) agent: Option<String>,
    #[serde(default)]
    pub(crate) mode: Option<String>,
}

impl Joined {
    /// Whether only what is said goes to the model.
    pub(crate) fn is_isolated(&self) -> bool {
        self.mode.as_deref() == Some("isolated")
    }
}

/// The session that the context names, to be gone on with by a person: one that has ended is opened again.
pub(crate) fn resumed(context: &Context) -> Result<Joined> {
    let joined: Joined = coprocess::ask("cp-session", &["show"], b"", context)?.data()?;
    if joined.ended {
        ask(context, "cp-session", &["resume"])?;
    }
    Ok(joined)
}

/// The session that the context names, if it names one. A session that has ended takes nothing more.
pub(crate) fn joined(context: &Context) -> Result<Option<Joined>> {
    if context.session().is_none() {
        return Ok(None);
    }
    let joined: Joined = coprocess::ask("cp-session", &["show"], b"", context)?.data()?;
    if joined.ended {
        let id = joined.session_id;
        return Err(Error::new(Code::Conflict, format!("the session {id} has ended"))
            .with("session", id.clone())
            .hint(format!("leave --session out for a new one, or open it again: cp-session resume {id}")));
    }
    Ok(Some(joined))
}

/// The ledgers of a session that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    session: String,
    directory: PathBuf,
    agent: String,
    exec: Ledger,
    evidence: Ledger,
    home: PathBuf,
    pending: Vec<Pending>,
    /// The number of the last turn on the record.
    turn: u64,
    /// Where our next entry comes if nobody else writes before.
    next_place: Option<u64>,
    /// Whether we started the session, and so end it.
    own: bool,
}

impl Journal {
    /// Goes on with the session that was joined, else starts one. From here on the context names it.
    pub(crate) fn open(joined: Option<&Joined>, agent: &str, context: &mut Context) -> Result<Self> {
        let own = joined.is_none_or(|joined| joined.ended);
        if joined.is_none() {
            // A program that is an agent has no soul in the home that a session could name.
            let known = if agent.contains('/') { "default" } else { agent };
            let started = ask(context, "cp-session", &["start", "--agent", known])?;
            let session = started["session_id"].as_str().unwrap_or_default();
            context.options.session = Some(session.to_owned());
        }
        let directory = cp_ledger::home::session_directory(context)?
            .ok_or_else(|| Error::new(Code::Unknown, "the session that was started has no directory"))?;
        let session = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let exec = cp_ledger::effect_ledger(context, "cp-exec.jsonl")?;
        let evidence = cp_ledger::effect_ledger(context, "cp-evidence.jsonl")?;
        let turn = if joined.is_none() { 0 } else { last_turn(exec.path(), &session)? };
        let agent = agent.to_owned();
        let home = context.home.root().to_owned();
        Ok(Self { session, directory, agent, exec, evidence, home, pending: Vec::new(), turn, next_place: None, own })
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// How many turns it has.
    pub(crate) fn turns(&self) -> u64 {
        self.turn
    }

    /// The session was made for this journal, and ends with it.
    pub(crate) fn own(&mut self) {
        self.own = true;
    }

    /// Whether the session was started here, and so ends with the journal.
    pub(crate) fn owns_session(&self) -> bool {
        self.own
    }

    /// Gets a turn ready for the record.
    pub(crate) fn stage(&mut self, mut turn: Turn) -> Result<()> {
        let (command, redactions) = self.exec.redactor().redact_text(&turn.command);
        let hmac = if redactions > 0 {
            Some(claims::command_hmac(turn.form, &turn.command, &Key::of_home(&self.home)?))
        } else {
            None
        };
        turn.command = command;
        self.pending.push(Pending { timestamp: clock::now(), turn, hmac });
        Ok(())
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
    pub(crate) fn record(&mut self, turn: Turn) -> Result<()> {
        self.stage(turn)?;
        self.commit().map(|_| ())
    }

    /// Whether everything that was recorded is on the disk.
    pub(crate) fn synced(&mut self) -> bool {
        self.commit().and_then(|_| self.exec.sync()).and_then(|()| self.evidence.sync()).is_ok()
    }

    /// Whether the disk took what it was given so far. Waits for nothing: the line about a question needs no sync of its own.
    pub(crate) fn is_certain(&mut self) -> bool {
        self.exec.is_certain() && self.evidence.is_certain()
    }

    /// Ends the session if we started it.
    pub(crate) fn end(mut self, context: &Context) -> Result<()> {
        self.commit()?;
        self.exec.sync()?;
        self.evidence.sync()?;
        if self.own {
            ask(context, "cp-session", &["end", &self.session])?;
        }
        Ok(())
    }
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
