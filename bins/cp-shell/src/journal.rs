//! The session's ledgers: every turn is recorded in the exec ledger and the evidence ledger before it is answered.

use std::path::{Path, PathBuf};
use std::time::Instant;

use cp_common::home::Home;
use cp_common::keys::Key;
use cp_common::{Code, Context, Error, Result, clock, coprocess};
use cp_ledger::format::canonical::{Form, command_hash, command_hmac, hash_value};
use cp_ledger::{Entry, Ledger, Receipt, blob};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ask;
use crate::plane::Read;

/// The evidence for an answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields))]
pub(crate) struct Evidence {
    /// The time of the answer.
    pub(crate) timestamp: String,
    /// The hash of the request, or of `{"cmd": text}` if it is not valid JSON.
    pub(crate) input_hash: String,
    /// The hash of the result, or of the error.
    pub(crate) output_hash: String,
    /// The duration.
    pub(crate) duration_ms: u64,
    /// The files that were read, with the hashes of the bytes that were read.
    pub(crate) declared_reads: Vec<Read>,
    /// The files that were written.
    pub(crate) declared_writes: Vec<Read>,
}

/// A named session before it is joined.
#[derive(Debug, Deserialize)]
pub(crate) struct Joined {
    session_id: String,
    /// True if the session had ended; it is ended again after it was reopened.
    #[serde(default)]
    ended: bool,
    #[serde(default)]
    pub(crate) agent: Option<String>,
    #[serde(default)]
    pub(crate) mode: Option<String>,
}

impl Joined {
    /// True if only the current turn is sent to the model.
    pub(crate) fn is_isolated(&self) -> bool {
        self.mode.as_deref() == Some("isolated")
    }
}

/// Returns the session that the context names, if any. A session that has ended is reopened, or is an error.
pub(crate) fn joined(reopens: bool, context: &Context) -> Result<Option<Joined>> {
    if context.session().is_none() {
        return Ok(None);
    }
    let joined: Joined = coprocess::ask("cp-session", &["show"], b"", context)?;
    if joined.ended && reopens {
        ask(context, "cp-session", &["reopen"])?;
    } else if joined.ended {
        let id = joined.session_id;
        return Err(Error::new(Code::Conflict, format!("the session {id} has ended"))
            .with("session", id.clone())
            .hint(format!("remove --session to start a new session, or reopen this one: cp-session reopen {id}")));
    }
    Ok(Some(joined))
}

/// An agent that is a program has no soul in the home that the session could name.
pub(crate) fn known_agent(agent: &str) -> &str {
    if agent.contains('/') { "default" } else { agent }
}

/// The ledgers of an open session.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) session: String,
    pub(crate) directory: PathBuf,
    agent: String,
    exec: Ledger,
    evidence: Ledger,
    home: Home,
    /// The data of the queued entries in the exec ledger and the evidence ledger, in the format of the control plane.
    pending: Vec<(Value, Value)>,
    /// The number of the last recorded turn.
    pub(crate) turn: u64,
    /// The sequence number of our next entry, if no other process writes first.
    next_place: Option<u64>,
    /// True if the session was started here, and so is ended here.
    pub(crate) own: bool,
}

impl Journal {
    /// Opens the ledgers of the joined session, or of a new one. The context names the session afterwards.
    pub(crate) fn open(joined: Option<&Joined>, agent: &str, context: &mut Context) -> Result<Self> {
        let own = joined.is_none_or(|joined| joined.ended);
        if joined.is_none() {
            let started = ask(context, "cp-session", &["start", "--agent", known_agent(agent)])?;
            let session = started["session_id"].as_str().unwrap_or_default();
            context.options.session = Some(session.to_owned());
        }
        let directory = cp_ledger::home::session_directory(context)?
            .ok_or_else(|| Error::new(Code::Unknown, "the new session has no directory"))?;
        let session = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let exec = cp_ledger::effect_ledger(context, "cp-exec.jsonl")?;
        let evidence = cp_ledger::effect_ledger(context, "cp-evidence.jsonl")?;
        let turn = if joined.is_none() { 0 } else { last_turn(exec.path(), &session)? };
        let agent = agent.to_owned();
        let home = context.home.clone();
        Ok(Self { session, directory, agent, exec, evidence, home, pending: Vec::new(), turn, next_place: None, own })
    }

    /// Queues a completed turn for recording: the request as it was received at `started`, after the form of it that is
    /// hashed; true if it succeeded, with its result or error; the files that were read, and those that were written;
    /// and the programs and services that were called. Returns the evidence.
    pub(crate) fn stage(
        &mut self,
        (form, command): (Form, &str),
        started: Instant,
        (succeeded, result): (bool, &Value),
        [declared_reads, declared_writes]: [Vec<Read>; 2],
        calls: &[Value],
    ) -> Result<Evidence> {
        let evidence = Evidence {
            timestamp: clock::now(),
            input_hash: command_hash(form, command),
            output_hash: hash_value(result),
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            declared_reads,
            declared_writes,
        };
        let (text, redactions) = Redactor::from_environment().redact_text(command);
        // A request with a secret has a keyed hash, because anyone who guesses the secret could confirm it with a plain
        // hash.
        let (kind, hash) = if redactions > 0 {
            ("hmac", command_hmac(form, command, &Key::of_home(&self.home)?))
        } else {
            ("hash", evidence.input_hash.clone())
        };
        // The number of the turn is not known yet.
        let executed = json!({
            "event_type": "agent_turn",
            "session_id": self.session,
            "turn_number": null,
            "timestamp": evidence.timestamp,
            "command": text,
            "command_form": form,
            (format!("command_{kind}")): hash,
            "result_hash": evidence.output_hash,
            "status": if succeeded { "ok" } else { "error" },
        });
        let proof = json!({
            "turn_evidence": {
                "session_id": self.session,
                "turn_number": null,
                "timestamp": evidence.timestamp,
                (format!("input_{kind}")): hash,
                "output_hash": evidence.output_hash,
                "duration_ms": evidence.duration_ms,
            },
            "declared_reads": evidence.declared_reads,
            "declared_writes": evidence.declared_writes,
            "external_calls": calls,
        });
        self.pending.push((executed, proof));
        Ok(evidence)
    }

    /// Records the queued turns.
    pub(crate) fn commit(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let Self { session, agent, exec, evidence, turn, next_place, .. } = self;
        let entry = |event: &str, number: u64| Entry::new(event).agent(&*agent).session(&*session).turn(number);
        let ledger = exec.path().to_owned();
        let receipts = exec.append_placed(|place| {
            // Other processes may have taken numbers since.
            if *next_place != Some(place) {
                *turn = last_turn(&ledger, session)?.max(*turn);
            }
            let numbered = (*turn + 1..).zip(&mut pending);
            let entries = numbered.map(|(number, (executed, proof))| {
                executed["turn_number"] = number.into();
                proof["turn_evidence"]["turn_number"] = number.into();
                entry("agent_turn", number).data(executed)
            });
            Ok(entries.collect())
        })?;
        let numbered = (*turn + 1..).zip(&pending);
        let proofs = numbered.map(|(number, (_, proof))| entry("turn_evidence", number).data(proof));
        evidence.append_all(proofs.collect())?;
        *turn += pending.len() as u64;
        *next_place = receipts.last().map(|receipt| receipt.seq + 1);
        Ok(())
    }

    /// Runs a command that cp-exec records in this session. Also returns the files that it changed, and the receipt of
    /// its end.
    pub(crate) fn watch<T>(&self, run: impl FnOnce() -> T) -> Result<(T, Vec<Read>, Option<Receipt>)> {
        let (ledger, session) = (self.exec.path(), Value::from(&*self.session).to_string());
        let first = cp_ledger::read::newest(ledger, |line| Some(line.seq() + 1))?.unwrap_or_default();
        let (outcome, mut writes, mut receipt) = (run(), Vec::new(), None);
        let mut lines = cp_ledger::read::backward(ledger)?;
        while let Some(raw) = lines.next()? {
            let Some(line) = raw.stored() else { continue };
            if line.seq() < first {
                break;
            }
            if line.member("session").is_some_and(|named| named != session.as_bytes()) {
                continue;
            }
            if line.is_event("exec.changes") {
                let files = line.data_member("files").unwrap_or(b"[]");
                let whole = blob::resolve(ledger, files)?;
                let files: Value = serde_json::from_slice(whole.as_deref().unwrap_or(files)).unwrap_or_default();
                writes.splice(0..0, Read::of_changes(&files));
            } else if line.is_event("exec.result") && receipt.is_none() {
                receipt = Some(self.exec.receipt(line.seq(), &line.hash()));
            }
        }
        Ok((outcome, writes, receipt))
    }

    /// Syncs the ledgers; returns true if everything is on the disk.
    pub(crate) fn synced(&mut self) -> bool {
        self.commit().and_then(|()| self.exec.sync()).and_then(|()| self.evidence.sync()).is_ok()
    }

    /// True if no sync has failed so far. Does not wait for a sync.
    pub(crate) fn is_certain(&mut self) -> bool {
        self.exec.is_certain() && self.evidence.is_certain()
    }

    /// Ends the session if it was started here.
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

/// Returns the number of the last turn of a session in a ledger.
fn last_turn(ledger: &Path, session: &str) -> Result<u64> {
    let session = Value::from(session).to_string();
    let turn = cp_ledger::read::newest(ledger, |line| {
        let is_its = line.is_event("agent_turn") && line.member("session") == Some(session.as_bytes());
        is_its.then(|| line.member("turn").and_then(|turn| serde_json::from_slice(turn).ok()).unwrap_or_default())
    })?;
    Ok(turn.unwrap_or_default())
}
