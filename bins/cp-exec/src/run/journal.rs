//! Entries of the ledger: the intent before a run, the result after it, and every refusal.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::exec_result::{FileChange, FilesChanged};
use cp_common::output::has_lost_reader;
use cp_common::wire::{Approval, Receipt};
use cp_common::{Code, Error, Result};
use cp_egress::Connection;
use cp_ledger::format::approval::Said;
use cp_ledger::format::canonical::hash_normal;
use cp_ledger::format::claims;
use cp_ledger::format::line::{Hash, Line};
use cp_ledger::store::blob;
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use super::result::{Outcome, text};
use super::streams::Captured;
use crate::decision::{Ruling, StepRuling};
use crate::digest::{KeyedHasher, sha256};
use crate::git_dir::Snapshot;
use crate::policy::{Actor, HostCall, Policy};
use crate::sandbox::plan::Operation;
use crate::sandbox::report::Quarantined;

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
    keyed: KeyedHasher,
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
            keyed: KeyedHasher::of_home(&policy.cp_home),
            actor: policy.actor.clone(),
            policy: policy.sha256().to_owned(),
        }
    }

    /// Records the intent to run a command. The entry is synced before the command starts.
    pub(crate) fn intend(&mut self, tool: &str, ruling: &Ruling) -> Result<Receipt> {
        let entry =
            self.entry("exec.intent").with("tool", tool).with("call", &ruling.call).with("line", &ruling.decision.line);
        let entry = self
            .command(entry, ruling)?
            .with("stdin", &ruling.decision.stdin)
            .with("timeout_ms", &u64::try_from(ruling.decision.timeout.as_millis()).unwrap_or(u64::MAX))
            .with("profile", &ruling.plan.profile)
            .with("network", &ruling.plan.network)
            .with("rule", &ruling.decision.finding.rule)
            .with("risk", &ruling.decision.finding.risk)
            .with("requires", &ruling.decision.question())
            .with("confirmed", &ruling.confirmed)
            .with("policy", &self.policy)
            .with("origin", self.actor.origin.name());
        self.durably(entry)
    }

    /// Records the result of a command.
    pub(crate) fn conclude(&mut self, ruling: &Ruling, intent: &Receipt, outcome: &Outcome) -> Result<Receipt> {
        let entry = self.entry("exec.result").with("intent", &intent.seq).with("call", &ruling.call);
        let steps = &outcome.steps;
        let counts = serde_json::json!({
            "line": steps.line,
            "programs": steps.programs,
            "unrecorded": steps.unrecorded,
            "denied": steps.denied_count,
        });
        let entry = ended(entry, outcome, self.kept_output(ruling, outcome)?);
        let entry = entry.with("steps", &counts).with("enforcement", &outcome.enforcement);
        let entry = with_snapshots(entry, &outcome.snapshots);
        let mut entries = vec![entry, self.evidence(intent, ruling)];
        if !outcome.changes.is_empty() {
            let entry = self.entry("exec.changes").with("intent", &intent.seq).with("call", &ruling.call);
            entries.push(entry.data(&outcome.changes));
        }
        let mut receipts = self.ledger()?.append_all(entries).map_err(Error::fatal)?;
        Ok(receipts.swap_remove(0))
    }

    /// The hashes of blobs with both streams, redacted, if the caller of a tool call has exited and gets no answer.
    /// Empty streams have none.
    fn kept_output(&mut self, ruling: &Ruling, outcome: &Outcome) -> Result<[Option<Hash>; 2]> {
        let mut kept = [None, None];
        if ruling.call.is_some() && has_lost_reader() {
            for (kept, stream) in kept.iter_mut().zip([&outcome.stdout, &outcome.stderr]) {
                let ledger = self.ledger()?;
                let (redacted, _) = ledger.redactor().redact_text(&text(stream));
                *kept = (stream.total > 0).then(|| blob::store(ledger.path(), redacted.as_bytes())).transpose()?;
            }
        }
        Ok(kept)
    }

    /// The declared inputs and outputs of a command: files with their hashes, directories by name.
    fn evidence(&self, intent: &Receipt, ruling: &Ruling) -> Entry {
        let pinned = &ruling.decision.pinned;
        let state = |path: &PathBuf| {
            if path == &pinned.path {
                serde_json::json!({ "path": path.display().to_string(), "sha256": pinned.sha256 })
            } else {
                state_of(path)
            }
        };
        let declared = |operation| ruling.plan.view.of(operation).map(state).collect::<Vec<_>>();
        self.entry("exec.evidence")
            .with("intent", &intent.seq)
            .with("declared_reads", &declared(Operation::Read))
            .with("declared_writes", &declared(Operation::Write))
    }

    /// Adds the members of a command to an entry.
    fn command(&mut self, entry: Entry, ruling: &Ruling) -> Result<Entry> {
        let pinned = &ruling.decision.pinned;
        let names: Vec<&str> = ruling.plan.env.iter().map(|(name, _)| name.as_str()).collect();
        let cwd = ruling.plan.cwd.path.display().to_string();
        let (name, hash) = self.claim(&claims::exec_command(&ruling.decision.argv, &cwd, &names))?;
        let interpreter = (pinned.exe.path != pinned.path).then(|| pinned.exe.path.display().to_string());
        let exe = serde_json::json!({
            "path": pinned.path.display().to_string(),
            "sha256": pinned.sha256,
            "cached": pinned.cached,
            "interpreter": interpreter,
        });
        let entry = entry.with("argv", &ruling.decision.argv).with(name, &hash).with("cwd", &cwd).with("exe", &exe);
        Ok(entry.with("env", &self.keyed.tag_all(&ruling.plan.env)))
    }

    /// An entry for a program that a run starts or that is refused.
    pub(crate) fn step(
        &self,
        intent: u64,
        number: u64,
        by: &str,
        ruling: &StepRuling,
        decision: &str,
        approval: Option<&str>,
    ) -> Entry {
        let exe = serde_json::json!({ "path": ruling.file.display().to_string(), "sha256": ruling.sha256 });
        self.entry("exec.step")
            .with("intent", &intent)
            .with("step", &number)
            .with("by", by)
            // The arguments as read from the caller's memory. Another thread may have changed them afterwards.
            .with("argv_as_asked", &ruling.argv)
            .with("cwd", &ruling.cwd.display().to_string())
            .with("exe", &exe)
            .with("decision", decision)
            .with("rule", &ruling.rule)
            .with("reason", &(decision != "allow").then_some(&ruling.reason))
            .with("approval", &approval)
    }

    /// An entry for a connection of a run, or for equal refusals.
    pub(crate) fn connection(&self, intent: u64, connection: &Connection) -> Entry {
        self.entry("exec.connection").with("intent", &intent).data(connection)
    }

    /// Appends entries in one write.
    pub(crate) fn append_all(&mut self, entries: Vec<Entry>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        self.ledger()?.append_all(entries).map(drop).map_err(Error::fatal)
    }

    /// Records that an intended command did not start, or was lost.
    pub(crate) fn abandon(&mut self, intent: &Receipt, error: &Error) -> Result<Receipt> {
        let entry = self
            .entry("exec.result")
            .message(error.message())
            .with("intent", &intent.seq)
            .with("return_code", &None::<i32>)
            .with("code", error.code().row().name);
        self.ledger()?.append(entry).map_err(Error::fatal)
    }

    /// Records the quarantined files of a run that was killed before its result was recorded.
    pub(crate) fn settle(&mut self, intent: u64, quarantined: &[Quarantined], snapshots: &[Snapshot]) -> Result<()> {
        if quarantined.is_empty() && self.has_result(intent)? {
            return Ok(());
        }
        let entry = self
            .entry("exec.result")
            .message("cp-exec was killed before the command ended; the next start settled the run")
            .with("intent", &intent)
            .with("return_code", &None::<i32>)
            .with("code", Code::Interrupted.row().name)
            .with("enforcement", &serde_json::json!({ "guard": quarantined }));
        let entry = with_snapshots(entry, snapshots);
        self.ledger()?.append(entry).map(drop).map_err(Error::fatal)
    }

    fn has_result(&mut self, intent: u64) -> Result<bool> {
        let names = [format!("\"intent\":{intent},"), format!("\"intent\":{intent}}}")];
        let found = self.newest(usize::MAX, |raw, line| {
            let holds = |name: &String| memchr::memmem::find(raw, name.as_bytes()).is_some();
            let is_result = line.is_event("exec.result") && names.iter().any(holds);
            (line.seq() <= intent || is_result).then_some(is_result)
        });
        Ok(found? == Some(true))
    }

    /// The first answer about an entry, of which the newest is asked about first.
    pub(crate) fn newest<T>(
        &mut self,
        most: usize,
        mut ask: impl FnMut(&[u8], &Line<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut lines = cp_ledger::read::backward(self.ledger()?.path())?;
        for _ in 0..most {
            let Some(raw) = lines.next()? else { break };
            if let Some(answer) = raw.stored().and_then(|line| ask(raw.bytes, &line)) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Records a refusal: the request, and the rule that refused it.
    pub(crate) fn refused(&mut self, asked: &impl Serialize, error: &Error) -> Result<Receipt> {
        let details = error.details();
        let entry = self
            .entry("exec.refused")
            .message(error.message())
            .with("asked", asked)
            .with("code", error.code().row().name)
            .with("rule", &details.get("rule"))
            .with("policy", &self.policy)
            .with("origin", self.actor.origin.name());
        self.ledger()?.append(entry).map_err(Error::fatal)
    }

    /// Records an event of an approval. The entry is synced before any consequence.
    pub(crate) fn approval(&mut self, said: Said<'_>, approval: &Approval) -> Result<Receipt> {
        let entry = said.about(approval, self.entry(said.event()));
        self.durably(entry)
    }

    /// Records an operation that needs no process.
    pub(crate) fn operation(&mut self, name: &str, data: &impl Serialize) -> Result<Receipt> {
        let entry = self.entry("exec.operation").with("operation", name).with("what", data);
        self.durably(entry)
    }

    /// Records changes of files that an operation without a process is about to make.
    pub(crate) fn changes(
        &mut self,
        operation: &str,
        files: Vec<FileChange>,
        more: &impl Serialize,
    ) -> Result<Receipt> {
        let entry = self.entry("exec.changes").with("operation", operation);
        self.durably(entry.data(&FilesChanged::of(files)).data(more))
    }

    /// Records an event of another agent. The entry is synced before the answer.
    pub(crate) fn host_event(&mut self, event: &str, data: &impl Serialize) -> Result<Receipt> {
        let entry = self.entry(event).data(data).with("policy", &self.policy);
        self.durably(entry)
    }

    /// The newest decision about a command of the current session of another agent. A decision that a run followed
    /// does not count.
    pub(crate) fn host_decision(&mut self, command: &str) -> Result<Option<HostDecision>> {
        let Some(HostCall { session, .. }) = self.actor.host.clone() else { return Ok(None) };
        let mut recorded = command.as_bytes().to_vec();
        self.ledger()?.redactor().redact(&mut recorded, 0);
        let mut started = Vec::new();
        self.newest(LINES, |_, line| {
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
        })
    }

    /// True if the newest entry about the current tool call, among entries of the events `among`, has this event and
    /// contains all of these texts.
    pub(crate) fn has(&mut self, event: &str, among: &[&str], named: &[&str]) -> Result<bool> {
        let Some(HostCall { call, .. }) = self.actor.host.clone() else { return Ok(false) };
        let call = quoted(&call);
        let found = self.newest(LINES, |raw, line| {
            let holds = |part: &[u8]| memchr::memmem::find(raw, part).is_some();
            let is_about = holds(&call) && among.iter().any(|event| line.is_event(event));
            is_about.then(|| line.is_event(event) && named.iter().all(|named| holds(&quoted(named))))
        });
        Ok(found? == Some(true))
    }

    /// The number of secrets of each kind in a text.
    pub(crate) fn secrets_in(&mut self, text: &str) -> Result<BTreeMap<&'static str, u64>> {
        let mut kinds = BTreeMap::new();
        for found in self.ledger()?.redactor().find(text) {
            *kinds.entry(found.rule).or_default() += 1;
        }
        Ok(kinds)
    }

    fn durably(&mut self, entry: Entry) -> Result<Receipt> {
        let ledger = self.ledger()?;
        let receipt = ledger.append(entry).map_err(Error::fatal)?;
        ledger.sync().map_err(Error::fatal)?;
        Ok(receipt)
    }

    /// The member name and hash of a command. If the command contains a secret, the hash is keyed.
    fn claim(&mut self, value: &[u8]) -> Result<(&'static str, Option<String>)> {
        let mut shown = value.to_vec();
        if self.ledger()?.redactor().redact(&mut shown, 0) == 0 {
            return Ok(("command_hash", Some(hash_normal(value))));
        }
        Ok(("command_hmac", self.keyed.of_command(value)))
    }

    /// Creates an entry that names the actor.
    fn entry(&self, event: &str) -> Entry {
        let Actor { agent, session, run, host, .. } = &self.actor;
        let mut entry = Entry::new(event).agent(agent.clone());
        if let Some(HostCall { host, session, call }) = host {
            entry = entry.with("host", host).with("host_session", session).with("host_call", call);
        }
        if let Some(session) = session {
            entry = entry.session(session.clone());
        }
        if let Some(run) = run {
            entry = entry.run(run.clone());
        }
        entry
    }

    /// Opens the ledger. If it cannot be opened, nothing runs.
    fn ledger(&mut self) -> Result<&mut Ledger> {
        Ledger::once(&mut self.ledger, &self.path, Sync::Batch)
    }
}

/// Adds the result of a command to an entry.
fn ended(entry: Entry, outcome: &Outcome, [stdout, stderr]: [Option<Hash>; 2]) -> Entry {
    let result = claims::ExecResult {
        return_code: outcome.status.code,
        signal: outcome.status.signal,
        stdout: &outcome.stdout.sha256,
        stderr: &outcome.stderr.sha256,
    };
    entry
        .with("return_code", &outcome.status.code)
        .with("signal", &outcome.status.signal)
        .with("ended", &outcome.ended)
        .with("duration_ms", &u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX))
        .with("stdout", &stream(&outcome.stdout, stdout))
        .with("stderr", &stream(&outcome.stderr, stderr))
        .with("result_hash", &claims::exec_result(&result))
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

fn stream(captured: &Captured, kept: Option<Hash>) -> serde_json::Value {
    let mut stream = serde_json::json!({ "bytes": captured.total, "sha256": captured.sha256 });
    if let Some(kept) = kept {
        stream["blob"] = kept.to_string().into();
    }
    stream
}

fn state_of(path: &Path) -> serde_json::Value {
    let hashed = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= HASHED);
    let hash = hashed.then(|| fs::read(path).ok()).flatten().map(|bytes| sha256(&bytes));
    let mut state = serde_json::json!({ "path": path.display().to_string() });
    if let Some(hash) = hash {
        state["sha256"] = hash.into();
    }
    state
}
