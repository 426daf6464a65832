//! `cp-exec undo`: restores the files that a run created, changed or removed.

use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change, Gate, Write};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{FileChange, Receipt, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Line;
use cp_ledger::read::segments::segments_of;
use cp_ledger::read::source::backward_of;
use cp_ledger::store::blob;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::git_dir::Recovery;
use crate::run::Engine;
use crate::tools::filesystem::{Step, Undo};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "undo",
    class: Class::Write,
    output: "run_undone",
    also: &["preview"],
    examples: &["{} policy init && {} -- touch new && {} undo last --dry-run"],
    events: &["exec.operation"],
    ..VerbDoc::EMPTY
};

/// Put back the files that a run created, changed or removed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The run: `seq` or the beginning of `hash` of its receipt, or `last`
    // The name is not `run`, because every program has an option `--run`.
    #[arg(id = "named", value_name = "RUN")]
    named: String,
    /// Leave files as they are that changed after the run
    #[arg(long)]
    except_changed: bool,
    /// Also put back objects, references, logs and the index of the run's repositories
    #[arg(long)]
    git: bool,
    #[command(flatten)]
    write: WriteOptions,
}

/// A run that was undone.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "run_undone", extend("x-untrusted" = ["files", "left_out"])))]
pub(crate) struct Undone {
    /// The sequence number of the intent, or of the undo that was undone.
    intent: u64,
    /// The restored paths.
    files: Vec<Restored>,
    /// The paths that were not restored.
    left_out: Vec<LeftOut>,
    /// The restored parts of each repository.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    repositories: Vec<RestoredRepository>,
    /// True if the run changed more files than its record lists.
    truncated: bool,
    /// The receipt of the undo; null if there was nothing to do.
    receipt: Option<Receipt>,
    /// JSON Pointers to untrusted values.
    #[serde(rename = "_untrusted")]
    untrusted: Vec<String>,
}

/// A restored path.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Restored {
    path: String,
    /// `restore`, or `remove` for a path that the run created.
    action: String,
}

/// The restored parts of a repository.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RestoredRepository {
    repository: String,
    /// The number of restored object files.
    objects: usize,
    /// Restored references, logs and indexes.
    files: Vec<String>,
}

impl From<&Recovery> for RestoredRepository {
    fn from(recovery: &Recovery) -> Self {
        Self {
            repository: recovery.repository.display().to_string(),
            objects: recovery.objects.len(),
            files: recovery.files.iter().map(|file| file.path.display().to_string()).collect(),
        }
    }
}

/// A path that was not restored.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeftOut {
    path: String,
    reason: String,
}

impl Reply for Undone {
    fn text(&self) -> String {
        let files = self.files.iter().map(|file| format!("{} {}", file.action, file.path));
        let left_out = self.left_out.iter().map(|left| format!("left out {} ({})", left.path, left.reason));
        let repositories = self.repositories.iter().map(|one| {
            let RestoredRepository { repository, objects, files } = one;
            format!("restore {repository}: {objects} objects; {}", files.join(", "))
        });
        let last = format!("run {} is undone; paths put back: {}", self.intent, self.files.len());
        files.chain(left_out).chain(repositories).chain([last]).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let asked = Write { verb: "undo", arguments: &(&args.named, args.except_changed, args.git), dangerous: false };
    confirm::write(&asked, &args.write, context, |gate, context| undo(args, gate, context))
}

fn undo<A: Serialize>(args: &Args, gate: Gate<'_, A>, context: &mut Context) -> Result<Option<Undone>> {
    let mut engine = Engine::new(context, &[])?;
    let (ledger, named) = (engine.policy.ledger.clone(), &args.named);
    let Recorded { intent, files, truncated } = gate.found(recorded(&ledger, named, args.git))?;
    let snapshots = if args.git { snapshots(&ledger, intent)? } else { Vec::new() };
    let recoveries = gate.found(snapshots.iter().map(|path| Recovery::find(path)).collect::<Result<Vec<_>>>())?;
    let recoveries: Vec<Recovery> = recoveries.into_iter().filter(|recovery| !recovery.is_empty()).collect();
    let repositories: Vec<_> = recoveries.iter().map(RestoredRepository::from).collect();
    let undo = Undo::of(&engine.policy, files, args.write.dry_run)?;
    if let Some(first) = undo.changed.first().filter(|_| !args.except_changed) {
        let more =
            if undo.changed.len() > 1 { format!(" (and {} more)", undo.changed.len() - 1) } else { String::new() };
        return Err(Error::new(Code::Conflict, format!("{}{more} changed after the run", first.display()))
            .with("reason", "changed")
            .with("path", first.display().to_string())
            .with("files", undo.changed.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
            .hint(
                "nothing was changed; with --except-changed these files stay as they are and the others are put back",
            ));
    }
    let changed = undo.changed.iter().map(|path| (path, "changed after the run"));
    let left_out = changed.chain(undo.lost.iter().map(|(path, reason)| (path, *reason)));
    let left_out = left_out
        .map(|(path, reason)| LeftOut { path: path.display().to_string(), reason: reason.to_owned() })
        .collect();
    let files =
        undo.steps.iter().map(|step| Restored { path: step_text(step), action: action(step).to_owned() }).collect();
    let receipt = if undo.steps.is_empty() && recoveries.is_empty() {
        gate.nothing_to_do()?;
        None
    } else {
        let listed = undo.steps.iter().map(change).chain(recoveries.iter().flat_map(changes_of_repository));
        if !gate.pass(listed.collect::<Vec<_>>(), context)? {
            return Ok(None);
        }
        let receipt = undo.carry_out(&mut engine, intent, &repositories)?;
        recoveries.iter().try_for_each(Recovery::apply)?;
        Some(receipt)
    };
    let untrusted = ["/files", "/left_out"].map(str::to_owned).to_vec();
    Ok(Some(Undone { intent, files, left_out, repositories, truncated, receipt, untrusted }))
}

fn step_text(step: &Step) -> String {
    step.path.display().to_string()
}

fn action(step: &Step) -> &'static str {
    if step.to.is_some() { "restore" } else { "remove" }
}

fn change(step: &Step) -> Change {
    let state = |state| serde_json::to_value(state).unwrap_or_default();
    Change {
        action: action(step).to_owned(),
        resource: "file".to_owned(),
        id: step_text(step),
        before: state(&step.from),
        after: state(&step.to),
    }
}

/// The changes in a repository: each file, and all objects together as one change, because there are many.
fn changes_of_repository(recovery: &Recovery) -> Vec<Change> {
    let change = |resource: &str, id: &Path, before, after| Change {
        action: "restore".to_owned(),
        resource: resource.to_owned(),
        id: id.display().to_string(),
        before,
        after,
    };
    let count = recovery.objects.len();
    let damaged = recovery.objects.iter().filter(|object| object.reason == "damaged").count();
    let before = json!({ "missing": count - damaged, "damaged": damaged });
    let objects = (count > 0).then(|| change("objects", &recovery.repository, before, json!({ "objects": count })));
    let files = recovery.files.iter().map(|file| {
        let path = recovery.repository.join(&file.path);
        change("file", &path, json!(file.reason), json!({ "from": file.from }))
    });
    objects.into_iter().chain(files).collect()
}

/// The recorded changes of a run.
struct Recorded {
    intent: u64,
    files: Vec<FileChange>,
    truncated: bool,
}

/// The members of an entry that are needed; each may be a blob.
#[derive(Deserialize)]
struct Data<'a> {
    intent: Option<u64>,
    operation: Option<&'a str>,
    #[serde(borrow)]
    what: Option<&'a RawValue>,
    #[serde(borrow)]
    files: Option<&'a RawValue>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    snapshots: Vec<PathBuf>,
}

/// The snapshots of a run's repositories.
fn snapshots(ledger: &Path, intent: u64) -> Result<Vec<PathBuf>> {
    let of_run = |line: &Line<'_>, data: &Data<'_>| line.is_event("exec.result") && data.intent == Some(intent);
    let found = find(ledger, |line, data| of_run(line, data).then(|| Ok(data.snapshots.clone())))?;
    Ok(found.unwrap_or_default())
}

/// The recorded changes of a run. `with_git`: a run that changed only repositories counts too.
fn recorded(ledger: &Path, named: &str, with_git: bool) -> Result<Recorded> {
    let none = |what: &str| Error::not_found(format!("no {what}: {named}")).in_file(ledger);
    let digits = named.strip_prefix("sha256:").unwrap_or(named);
    let seq = named.parse::<u64>().ok();
    let is_meant = |line: &Line<'_>| match named {
        "last" if with_git => line.is_event("exec.result"),
        "last" => line.is_event("exec.changes"),
        // The beginning of a hash may consist of digits only.
        _ => seq == Some(line.seq()) || digits.len() >= 8 && line.hash_hex().starts_with(digits.as_bytes()),
    };
    let found = find(ledger, |line, data| {
        is_meant(line).then(|| {
            let own = line.is_event("exec.changes") || data.operation == Some("undo");
            if own { changes(ledger, line, data).map(Ok) } else { Ok(Err(data.intent.unwrap_or(line.seq()))) }
        })
    })?;
    let intent = match found.ok_or_else(|| none("run"))? {
        Ok(recorded) => return Ok(recorded),
        Err(intent) => intent,
    };
    let of_run = |line: &Line<'_>, data: &Data<'_>| line.is_event("exec.changes") && data.intent == Some(intent);
    let found = find(ledger, |line, data| of_run(line, data).then(|| changes(ledger, line, data)))?;
    let found = found.or_else(|| with_git.then(|| Recorded { intent, files: Vec::new(), truncated: false }));
    found.ok_or_else(|| none("file changes recorded for the run"))
}

/// The events that can be named, and those that list changes.
const EVENTS: [&str; 4] = ["exec.intent", "exec.result", "exec.changes", "exec.operation"];

/// The first result of `pick`, from the newest entry to the oldest.
fn find<T>(ledger: &Path, pick: impl Fn(&Line<'_>, &Data<'_>) -> Option<Result<T>>) -> Result<Option<T>> {
    let mut files = segments_of(ledger)?;
    files.extend(ledger.exists().then(|| ledger.to_owned()));
    for file in files.iter().rev() {
        let mut lines = backward_of(file)?;
        while let Some(raw) = lines.next()? {
            let is_run = |line: &Line<'_>| EVENTS.iter().any(|event| line.is_event(event));
            let Some(line) = raw.stored().filter(is_run) else { continue };
            let data = line.member("data").and_then(|data| serde_json::from_slice(data).ok());
            if let Some(found) = data.and_then(|data| pick(&line, &data)) {
                return found.map(Some);
            }
        }
    }
    Ok(None)
}

/// The changes that an entry of a run or an undo lists.
fn changes(ledger: &Path, line: &Line<'_>, data: &Data<'_>) -> Result<Recorded> {
    let damaged =
        |e: serde_json::Error| Error::new(Code::Integrity, format!("entry {}: {e}", line.seq())).in_file(ledger);
    let value = |raw: Option<&RawValue>| -> Result<Vec<u8>> {
        let bytes = raw.map_or("[]", RawValue::get).as_bytes();
        Ok(blob::resolve(ledger, bytes)?.unwrap_or_else(|| bytes.to_vec()))
    };
    if data.operation.is_some() {
        let what = value(data.what)?;
        let what: Data<'_> = serde_json::from_slice(&what).map_err(damaged)?;
        let files = serde_json::from_slice(&value(what.files)?).map_err(damaged)?;
        return Ok(Recorded { intent: line.seq(), files, truncated: false });
    }
    let files = serde_json::from_slice(&value(data.files)?).map_err(damaged)?;
    Ok(Recorded { intent: data.intent.unwrap_or(line.seq()), files, truncated: data.truncated })
}
