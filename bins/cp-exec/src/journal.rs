//! What goes on the ledger: the intent before, the result after, and every refusal.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::wire::Receipt;
use cp_common::{Error, Result};
use cp_ledger::Entry;
use serde::Serialize;

use crate::capture::sha256;
use crate::decide::Ruling;
use crate::engine::{Ended, Outcome};
use crate::governor::Governor;

/// Declared files up to this size are hashed.
const HASHED: u64 = 16 << 20;

/// The hash of what is to run: words, place, and the names of variables.
pub(crate) fn command_hash(ruling: &Ruling) -> String {
    let names: Vec<&str> = ruling.plan.env.iter().map(|(name, _)| name.as_str()).collect();
    let bound = (&ruling.argv, ruling.plan.cwd.path.display().to_string(), names);
    sha256(serde_json::to_string(&bound).unwrap_or_default().as_bytes())
}

/// The hash of what came of it.
pub(crate) fn result_hash(outcome: &Outcome) -> String {
    let bound = (&outcome.stdout.sha256, &outcome.stderr.sha256, outcome.status.code, outcome.status.signal);
    sha256(serde_json::to_string(&bound).unwrap_or_default().as_bytes())
}

/// An entry that names who acts.
fn entry(governor: &Governor, event: &str) -> Entry {
    let (agent, session, run) = &governor.who;
    let mut entry = Entry::new(event).agent(agent.clone());
    if let Some(session) = session {
        entry = entry.session(session.clone());
    }
    if let Some(run) = run {
        entry = entry.run(run.clone());
    }
    entry
}

/// Records that a command is about to run, on the disk before it does.
pub(crate) fn intend(governor: &mut Governor, tool: &str, ruling: &Ruling, stage: usize) -> Result<Receipt> {
    let exec = &governor.loaded.policy.exec;
    let pinned = &ruling.pinned;
    let entry = entry(governor, "exec.intent")
        .with("tool", tool)
        .with("argv", &ruling.argv)
        .with("stage", &stage)
        .with("command_hash", &command_hash(ruling))
        .with("cwd", &ruling.plan.cwd.path.display().to_string())
        .with(
            "exe",
            &serde_json::json!({
                "path": pinned.path.display().to_string(),
                "sha256": pinned.sha256,
                "cached": pinned.cached,
                "interpreter": (pinned.exe.path != pinned.path).then(|| pinned.exe.path.display().to_string()),
            }),
        )
        .with("env", &governor.keyed.of_all(&ruling.plan.env))
        .with("stdin", &ruling.stdin)
        .with("timeout_ms", &u64::try_from(ruling.timeout.as_millis()).unwrap_or(u64::MAX))
        .with("profile", &ruling.plan.profile)
        .with("network", &ruling.plan.network)
        .with("argument_rules", &exec.argument_rules)
        .with("rule", &ruling.rule)
        .with("risk", &ruling.risk)
        .with("confirmed", &ruling.confirmed)
        .with("policy", &governor.loaded.sha256)
        .with("origin", governor.origin.name());
    durably(governor, entry)
}

/// Records how a command ended.
pub(crate) fn conclude(
    governor: &mut Governor,
    ruling: &Ruling,
    intent: &Receipt,
    outcome: &Outcome,
) -> Result<Receipt> {
    let ended = outcome.ended.map(|ended| match ended {
        Ended::TimedOut => "timed_out",
        Ended::OutputLimit => "output_limit",
        Ended::Interrupted => "interrupted",
    });
    let stream =
        |captured: &crate::capture::Captured| serde_json::json!({ "bytes": captured.total, "sha256": captured.sha256 });
    let entry = entry(governor, "exec.result")
        .with("intent", &intent.seq)
        .with("return_code", &outcome.status.code)
        .with("signal", &outcome.status.signal)
        .with("ended", &ended)
        .with("duration_ms", &u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX))
        .with("stdout", &stream(&outcome.stdout))
        .with("stderr", &stream(&outcome.stderr))
        .with("result_hash", &result_hash(outcome))
        .with("enforcement", &outcome.enforcement);
    let evidence = evidence(governor, intent, ruling);
    let mut receipts = governor.ledger()?.append_all(vec![entry, evidence]).map_err(Error::fatal)?;
    Ok(receipts.swap_remove(0))
}

/// What a command was declared to read and write: files with their hashes, directories by name.
fn evidence(governor: &Governor, intent: &Receipt, ruling: &Ruling) -> Entry {
    // The program is among what it reads, and its hash is known.
    let state = |path: &PathBuf| {
        if *path == ruling.pinned.path {
            return serde_json::json!({ "path": path.display().to_string(), "sha256": ruling.pinned.sha256 });
        }
        state_of(path)
    };
    let declared = |paths: &[PathBuf]| paths.iter().map(state).collect::<Vec<_>>();
    entry(governor, "exec.evidence")
        .with("intent", &intent.seq)
        .with("declared_reads", &declared(&ruling.plan.read))
        .with("declared_writes", &declared(&ruling.plan.write))
        .with("external_calls", &Vec::<String>::new())
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

/// Records that an intended command did not start, or was lost.
pub(crate) fn abandon(governor: &mut Governor, intent: &Receipt, error: &Error) -> Result<Receipt> {
    let entry = entry(governor, "exec.result")
        .message(error.message())
        .with("intent", &intent.seq)
        .with("return_code", &None::<i32>)
        .with("code", error.code().row().name);
    governor.ledger()?.append(entry).map_err(Error::fatal)
}

/// Records a refusal: what was asked, and by which rule it was refused.
pub(crate) fn refused(governor: &mut Governor, asked: &impl Serialize, error: &Error) -> Result<Receipt> {
    let details = error.details();
    let entry = entry(governor, "exec.refused")
        .message(error.message())
        .with("asked", asked)
        .with("code", error.code().row().name)
        .with("rule", &details.get("rule"))
        .with("policy", &governor.loaded.sha256)
        .with("origin", governor.origin.name());
    governor.ledger()?.append(entry).map_err(Error::fatal)
}

/// Records an operation that needs no process.
pub(crate) fn operation(governor: &mut Governor, name: &str, data: &impl Serialize) -> Result<Receipt> {
    let entry = entry(governor, "exec.operation").with("operation", name).with("what", data);
    durably(governor, entry)
}

fn durably(governor: &mut Governor, entry: Entry) -> Result<Receipt> {
    let ledger = governor.ledger()?;
    let receipt = ledger.append(entry).map_err(Error::fatal)?;
    ledger.sync().map_err(Error::fatal)?;
    Ok(receipt)
}
