//! The session's ledgers: every turn on the exec ledger and on the evidence ledger.

use std::path::PathBuf;

use cp_common::clock;
use cp_common::{Code, Context, Error, Result, part};
use cp_log::ledger::{Entry, Ledger};
use serde_json::{Value, json};

use crate::plane::Read;

/// A turn that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    /// What was asked, as it was asked.
    pub(crate) command: &'a str,
    /// Its hash.
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

/// The ledgers of a session that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    session: String,
    directory: PathBuf,
    agent: String,
    exec: Ledger,
    evidence: Ledger,
    turn: u64,
    /// Whether we started the session, and so end it.
    own: bool,
}

impl Journal {
    /// Joins the session that is named, else starts one. From here on the context names it.
    pub(crate) fn open(context: &mut Context, agent: &str) -> Result<Self> {
        let own = context.session().is_none();
        if own {
            let started = ask(context, "cp-session", &["start", "--agent", agent])?;
            let session = started["session_id"].as_str().unwrap_or_default();
            context.options.session = Some(session.to_owned());
        }
        let directory = cp_log::effect::session_directory(context)?
            .ok_or_else(|| Error::new(Code::Unknown, "the session that was started has no place"))?;
        let session = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let exec = cp_log::effect_ledger(context, "cp-exec.jsonl")?;
        let evidence = cp_log::effect_ledger(context, "cp-evidence.jsonl")?;
        Ok(Self { session, directory, agent: agent.to_owned(), exec, evidence, turn: 0, own })
    }

    /// The id of the session.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Where its files lie.
    pub(crate) fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Puts a turn on the record.
    pub(crate) fn record(&mut self, turn: &Turn<'_>) -> Result<()> {
        self.turn += 1;
        let now = clock::now();
        let entry = |event: &str| Entry::new(event).agent(&self.agent).session(&self.session).turn(self.turn);
        let status = if turn.fine { "ok" } else { "error" };
        self.exec.append(
            entry("agent_turn")
                .with("event_type", "agent_turn")
                .with("session_id", &self.session)
                .with("turn_number", &self.turn)
                .with("timestamp", &now)
                .with("command", turn.command)
                .with("command_hash", turn.command_hash)
                .with("result_hash", turn.result_hash)
                .with("status", status),
        )?;
        let evidence = json!({
            "session_id": self.session,
            "turn_number": self.turn,
            "timestamp": now,
            "input_hash": turn.command_hash,
            "output_hash": turn.result_hash,
            "duration_ms": turn.duration_ms,
        });
        self.evidence.append(
            entry("turn_evidence")
                .with("turn_evidence", &evidence)
                .with("declared_reads", turn.reads)
                .with("declared_writes", turn.writes)
                .with("external_calls", turn.calls),
        )?;
        Ok(())
    }

    /// Whether everything that was recorded is on the disk.
    pub(crate) fn synced(&mut self) -> bool {
        self.exec.sync().and_then(|()| self.evidence.sync()).is_ok()
    }

    /// Ends the session if we started it.
    pub(crate) fn end(mut self, context: &Context) -> Result<()> {
        self.exec.sync()?;
        self.evidence.sync()?;
        if self.own {
            ask(context, "cp-session", &["end"])?;
        }
        Ok(())
    }
}

/// Runs a verb of one of our programs, and gives the data of its answer.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    let mut argv: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
    argv.extend(context.handed_on().into_iter().map(Into::into));
    let output = duct::cmd(part::find(program)?, argv).stdin_null().stdout_capture().stderr_null().unchecked().run();
    let output = output.map_err(|e| Error::io(format!("running {program}"), e))?;
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| Error::new(Code::Unknown, format!("{program} did not answer")))?;
    if answer["ok"] == true {
        return Ok(answer["data"].clone());
    }
    let code = answer["error"]["code"].as_str().and_then(Code::from_name).unwrap_or(Code::Unknown);
    let message = answer["error"]["message"].as_str().unwrap_or("failed").to_owned();
    let mut error = Error::new(code, message);
    for (name, value) in answer["error"]["details"].as_object().into_iter().flatten() {
        error = match value.as_str().filter(|_| name == "hint") {
            Some(hint) => error.hint(hint),
            None => error.with(name, value.clone()),
        };
    }
    Err(error)
}
