//! Entries of the ledger: the intent before a run, the result after it, and every refusal.
//!
//! A [`Recorder`] writes those about a run while it runs. The limits of a run do not hold for the memory and the ledger
//! of its supervisor, so that what it says has a budget.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cp_common::keys::Key;
use cp_common::output::has_lost_reader;
use cp_common::wire::{Approval, Receipt};
use cp_common::{Code, Error, Result};
use cp_ledger::blob;
use cp_ledger::format::approval::Said;
use cp_ledger::format::canonical::{ExecResult, exec_command, exec_result, hash_normal, tag_of_command};
use cp_ledger::format::line::Line;
use cp_ledger::read::backward;
use cp_ledger::read::segments::segments_of;
use cp_ledger::{Entry, Ledger, Sync};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::result::{Outcome, milliseconds};
use super::streams::Capture;
use crate::changes::Changes;
use crate::decision::Ruling;
use crate::digest::{sha256, tag_all};
use crate::git_dir::Snapshot;
use crate::guard::settle::Settled;
use crate::policy::{Actor, HostCall, Policy};
use crate::refusal::refuse;
use crate::sandbox::plan::Operation;

/// Declared files up to this size are hashed.
const HASHED: u64 = 16 << 20;

/// The number of entries that are searched for a tool call of another agent. Its events follow each other closely.
const LINES: usize = 500;

/// A recorded decision about a tool call of another agent.
#[derive(Deserialize)]
pub(crate) struct HostDecision {
    host_session: String,
    pub host_call: String,
    command: Option<String>,
    /// The time limit of the agent in milliseconds.
    pub timeout: Option<f64>,
}

/// Writes the entries of this program. The ledger is opened with the first entry.
pub(crate) struct Journal {
    path: PathBuf,
    ledger: Option<Ledger>,
    /// The token key of the home, which is created at first use; `None` if the home is not writable.
    key: Option<Key>,
    actor: Actor,
    /// The hash of the policy in force.
    policy: String,
}

impl Journal {
    /// The journal for actions under a policy.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            path: policy.ledger.clone(),
            ledger: None,
            key: Key::of_home(&policy.cp_home).ok(),
            actor: policy.actor.clone(),
            policy: policy.sha256().to_owned(),
        }
    }

    /// Records the intent to run a command. The entry is synced before the command starts.
    pub(crate) fn intend(&mut self, tool: &str, ruling: &Ruling) -> Result<Receipt> {
        let Ruling { decision, plan, .. } = ruling;
        let (command, pinned) = (&decision.command, &decision.pinned);
        let cwd = plan.cwd.path.display().to_string();
        let names: Vec<&str> = plan.env.iter().map(|(name, _)| name.as_str()).collect();
        let hashed = exec_command(&command.argv, &cwd, &names);
        // The hash of a command that contains a secret is keyed.
        let entry = match Redactor::from_environment().redact(&mut hashed.clone(), 0) {
            0 => self.entry("exec.intent").with("command_hash", &hash_normal(&hashed)),
            _ => self
                .entry("exec.intent")
                .with("command_hmac", &self.key.as_ref().map(|key| tag_of_command(&hashed, key))),
        };
        let interpreter = (pinned.exe.path != pinned.path).then(|| pinned.exe.path.display().to_string());
        self.synced(entry.data(&json!({
            "tool": tool,
            "call": ruling.call,
            "line": command.line,
            "argv": command.argv,
            "cwd": cwd,
            "exe": {
                "path": pinned.path.display().to_string(),
                "sha256": pinned.sha256,
                "cached": pinned.cached,
                "interpreter": interpreter,
            },
            "env": tag_all(self.key.as_ref(), &plan.env),
            "stdin": decision.stdin(),
            "timeout_ms": milliseconds(decision.timeout),
            "profile": plan.profile,
            "network": plan.network,
            "rule": decision.finding.rule,
            "requires": decision.question(),
            "confirmed": ruling.confirmed,
            "policy": self.policy,
            "origin": self.actor.origin.name(),
        })))
    }

    /// Records the result of a command.
    pub(crate) fn conclude(&mut self, ruling: &Ruling, intent: u64, outcome: &Outcome) -> Result<Receipt> {
        let Outcome { status, steps, stdout, stderr, .. } = outcome;
        let result = ExecResult {
            return_code: status.code,
            signal: status.signal,
            stdout: &stdout.sha256(),
            stderr: &stderr.sha256(),
        };
        // The output is kept if the caller of a tool call has exited and gets no answer.
        let is_kept = ruling.call.is_some() && has_lost_reader();
        let about = json!({ "intent": intent, "call": ruling.call });
        let pinned = &ruling.decision.pinned;
        let state = |path: &PathBuf| state_of(path, (path == &pinned.path).then(|| pinned.sha256.clone()));
        let declared = |operation| ruling.plan.view.of(operation).map(state).collect::<Vec<_>>();
        let entry = self.entry("exec.result").data(&about).data(&json!({
            "return_code": status.code,
            "signal": status.signal,
            "ended": outcome.ended,
            "duration_ms": milliseconds(outcome.duration),
            "stdout": self.stream(stdout, is_kept)?,
            "stderr": self.stream(stderr, is_kept)?,
            "result_hash": exec_result(&result),
            "steps": {
                "line": steps.line,
                "programs": steps.programs,
                "unrecorded": steps.unrecorded,
                "denied": steps.denied_count,
            },
            "enforcement": outcome.enforcement,
            "declared_reads": declared(Operation::Read),
            "declared_writes": declared(Operation::Write),
        }));
        let mut entries = vec![with_snapshots(entry, &ruling.watched.snapshots())];
        if !outcome.changes.is_empty() {
            entries.push(self.entry("exec.changes").data(&about).data(&outcome.changes));
        }
        Ok(self.ledger()?.append_all(entries).map_err(Error::fatal)?.swap_remove(0))
    }

    /// A stream by its size and hash, with its redacted text as a blob if it is kept.
    fn stream(&mut self, captured: &Capture, is_kept: bool) -> Result<Value> {
        let mut stream = json!({ "bytes": captured.total, "sha256": captured.sha256() });
        if is_kept && captured.total > 0 {
            let (redacted, _) = Redactor::from_environment().redact_text(&captured.text());
            stream["blob"] = blob::store(self.ledger()?.path(), redacted.as_bytes())?.to_string().into();
        }
        Ok(stream)
    }

    fn append(&mut self, entry: Entry) -> Result<Receipt> {
        self.ledger()?.append(entry).map_err(Error::fatal)
    }

    /// Appends an entry, and syncs it before any consequence.
    pub(crate) fn synced(&mut self, entry: Entry) -> Result<Receipt> {
        let receipt = self.append(entry)?;
        self.ledger()?.sync().map_err(Error::fatal)?;
        Ok(receipt)
    }

    /// Records that an intended command did not start, or was lost.
    pub(crate) fn abandon(&mut self, intent: u64, error: &Error) -> Result<Receipt> {
        let data = json!({ "intent": intent, "return_code": null, "code": error.code().row().name });
        self.append(self.entry("exec.result").message(error.message()).data(&data))
    }

    /// Records the quarantined files and the changes of a run that was killed before its result was recorded. False if
    /// there is nothing to record.
    pub(crate) fn settle(&mut self, settled: &Settled) -> Result<bool> {
        let Settled { run, quarantined, changes, .. } = settled;
        let has_result = self.has_result(run.intent)?;
        if quarantined.is_empty() && has_result {
            return Ok(false);
        }
        // Changes that the run itself recorded are not recorded again.
        let changes = changes.as_ref().filter(|_| !has_result);
        let enforcement = json!({ "guard": quarantined, "missing": changes.and_then(Changes::missing) });
        let data = json!({ "return_code": null, "code": Code::Interrupted.row().name, "enforcement": enforcement });
        let message = "cp-exec was killed before the command ended; the next start settled the run";
        let about = json!({ "intent": run.intent, "call": run.call });
        let own = std::mem::replace(&mut self.actor, run.actor.clone());
        let entry = self.entry("exec.result").message(message).data(&about).data(&data);
        let mut entries = vec![with_snapshots(entry, &run.watched.snapshots())];
        entries.extend(changes.map(|changes| self.entry("exec.changes").data(&about).data(changes)));
        self.actor = own;
        self.ledger()?.append_all(entries).map(|_| true).map_err(Error::fatal)
    }

    fn has_result(&self, intent: u64) -> Result<bool> {
        let number = intent.to_string();
        let found = newest(&self.path, usize::MAX, |_, line| {
            let is_result = line.is_event("exec.result") && line.data_member("intent") == Some(number.as_bytes());
            Ok((line.seq() <= intent || is_result).then_some(is_result))
        });
        Ok(found? == Some(true))
    }

    /// Records a refusal: the request, and the rule that refused it.
    pub(crate) fn refused(&mut self, asked: &impl Serialize, error: &Error) -> Result<Receipt> {
        self.append(self.entry("exec.refused").message(error.message()).with("asked", asked).data(&json!({
            "code": error.code().row().name,
            "rule": error.details().get("rule"),
            "policy": self.policy,
            "origin": self.actor.origin.name(),
        })))
    }

    /// Records an event of an approval. The entry is synced before any consequence.
    pub(crate) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> Result<Receipt> {
        self.synced(said.about(approval, self.entry(said.event())))
    }

    /// The newest decision about a command of the current session of another agent. A decision that a run followed
    /// does not count.
    pub(crate) fn host_decision(&mut self, command: &str) -> Result<Option<HostDecision>> {
        let Some(HostCall { session, .. }) = self.actor.host.clone() else { return Ok(None) };
        let mut recorded = command.as_bytes().to_vec();
        Redactor::from_environment().redact(&mut recorded, 0);
        let mut started = Vec::new();
        let mut decision = |line: &Line<'_>| {
            let is_intent = line.is_event("host.intent");
            if !is_intent && !line.is_event("exec.intent") {
                return None;
            }
            let data: HostDecision = serde_json::from_slice(line.member("data")?).ok()?;
            if data.host_session != session || started.contains(&data.host_call) {
                return None;
            }
            if !is_intent {
                started.push(data.host_call);
                return None;
            }
            Some(data).filter(|data| data.command.as_deref().map(str::as_bytes) == Some(&recorded))
        };
        newest(&self.path, LINES, |_, line| Ok(decision(line)))
    }

    /// Creates an entry that names the actor.
    pub(crate) fn entry(&self, event: &str) -> Entry {
        let Actor { agent, session, run, host, .. } = &self.actor;
        let entry = Entry::new(event).agent(agent.clone());
        let entry = host.iter().fold(entry, |entry, HostCall { host, session, call }| {
            entry.with("host", host).with("host_session", session).with("host_call", call)
        });
        let entry = session.iter().fold(entry, |entry, session| entry.session(session.as_str()));
        run.iter().fold(entry, |entry, run| entry.run(run.as_str()))
    }

    /// Opens the ledger. If it cannot be opened, nothing runs.
    fn ledger(&mut self) -> Result<&mut Ledger> {
        Ledger::once(&mut self.ledger, &self.path, Sync::Batch)
    }
}

/// The first answer about an entry of a ledger, of which the newest is asked about first. Closed segments are read too.
pub(crate) fn newest<T>(
    ledger: &Path,
    most: usize,
    mut ask: impl FnMut(&[u8], &Line<'_>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut left = most;
    let files = segments_of(ledger)?.into_iter().chain(ledger.exists().then(|| ledger.to_owned()));
    for file in files.rev() {
        let mut lines = backward(&file)?;
        while let Some(raw) = lines.next()?.filter(|_| left > 0) {
            left -= 1;
            if let Some(line) = raw.stored()
                && let Some(answer) = ask(raw.bytes, &line)?
            {
                return Ok(Some(answer));
            }
        }
    }
    Ok(None)
}

/// Adds what was kept of repositories before the run, for `undo --git`.
fn with_snapshots(entry: Entry, snapshots: &[Snapshot]) -> Entry {
    if snapshots.is_empty() { entry } else { entry.with("snapshots", &snapshots) }
}

/// The JSON of a text, as entries contain it.
pub(crate) fn quoted(text: &str) -> Vec<u8> {
    let mut quoted = Vec::new();
    cp_common::json::string(text, &mut quoted);
    quoted
}

/// A declared input or output of a command: a file with its hash, or a directory by name.
fn state_of(path: &Path, known: Option<String>) -> Value {
    let is_hashed = || fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= HASHED);
    let read = || is_hashed().then(|| fs::read(path).ok()).flatten().map(|bytes| sha256(&bytes));
    let mut state = json!({ "path": path.display().to_string() });
    if let Some(hash) = known.or_else(read) {
        state["sha256"] = hash.into();
    }
    state
}

/// The bytes that a run may add at once, and those that it may add with each second.
const AT_ONCE: u64 = 8 << 20;
const WITH_EACH_SECOND: u64 = 16 << 10;
/// The bytes of an entry without what the run says in it.
const ENTRY: u64 = 512;

/// Records what a run does, for steps, approvals, tool calls and connections.
pub(crate) struct Recorder {
    pub journal: Journal,
    pub intent: u64,
    since: Instant,
    /// The bytes of the run so far.
    spent: u64,
    /// The error of the ledger. All later steps are refused.
    pub failed: Option<Error>,
}

impl Recorder {
    pub(super) fn new(policy: &Policy, intent: u64) -> Self {
        let (journal, since) = (Journal::new(policy), Instant::now());
        Self { journal, intent, since, spent: 0, failed: None }
    }

    /// Takes the bytes of one more entry. False if too few are left.
    pub(super) fn take(&mut self, said: usize) -> bool {
        let needed = ENTRY.saturating_add(said as u64);
        let granted = AT_ONCE + WITH_EACH_SECOND * self.since.elapsed().as_secs();
        let is_left = self.spent.saturating_add(needed) <= granted;
        self.spent += if is_left { needed } else { 0 };
        is_left
    }

    /// Takes the bytes of an entry about something, or refuses it.
    pub(super) fn charge(&mut self, said: &impl Serialize) -> Result<()> {
        if self.take(serde_json::to_vec(said).map_or(usize::MAX, |said| said.len())) {
            return Ok(());
        }
        Err(refuse("requests", "the run says more than is recorded").hint("repeat it later, or with fewer words"))
    }

    /// Writes an entry, which needs no sync.
    pub(super) fn add(&mut self, event: &str, data: &impl Serialize) {
        let written = self.journal.append(self.journal.entry(event).with("intent", &self.intent).data(data));
        self.note(written.map(drop));
    }

    /// Writes an event of an approval, and syncs it. False if that failed.
    pub(super) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> bool {
        let written = self.journal.approval(said, approval);
        self.note(written.map(drop))
    }

    fn note(&mut self, written: Result<()>) -> bool {
        written.map_err(|error| self.failed.get_or_insert(error)).is_ok()
    }
}
