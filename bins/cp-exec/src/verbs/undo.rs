//! `cp-exec undo`: restores the files that runs and file tools created, changed or removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::exec_result::{FileChange, FileState};
use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change, Changes, Outcome, Plan};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::blob;
use cp_ledger::format::line::Line;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::changes::Store;
use crate::git_dir::{Recovery, Snapshot};
use crate::policy::{Actor, Policy};
use crate::run::{Engine, NOT_RECORDED, newest, quoted};
use crate::tools::filesystem::{CHANGED, LeftOut, Recorded, Undo, locked};
use crate::verbs::run::report_killed_runs;

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["preview"],
    examples: &["{} policy init && {} -- touch new && {} undo last --dry-run"],
    events: &["exec.changes"],
    ..VerbDoc::new("undo", Class::Write, "run_undone")
};

/// Put back files that runs or file tools created, changed or removed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// `seq` or the beginning of `hash` of a receipt, the id of a tool call, `last`, or `all` of --run or --session
    #[arg(value_name = "CHANGE")]
    named: String,
    /// Leave files as they are that others changed
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
    /// The sequence numbers of the intents of runs, of edits and of undos that were undone, the newest first.
    undoes: Vec<u64>,
    /// The restored paths.
    files: Vec<Restored>,
    /// The paths that were not restored.
    left_out: Vec<LeftOut>,
    /// True if a run changed more files than its record lists.
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

impl Reply for Undone {
    fn text(&self) -> String {
        let files = self.files.iter().map(|file| format!("{} {}", file.action, file.path));
        let left_out = self.left_out.iter().map(|left| format!("left out {} ({})", left.path, left.reason));
        let undoes: Vec<String> = self.undoes.iter().map(u64::to_string).collect();
        let done = if self.files.is_empty() { "nothing to put back" } else { "undone" };
        let last = format!("{done}: {}; paths put back: {}", undoes.join(", "), self.files.len());
        files.chain(left_out).chain([last]).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let arguments = (&args.named, args.except_changed, args.git);
    confirm::write(&DOC, &arguments, &args.write, context, |context| plan(args, context))
}

fn plan(args: &Args, context: &mut Context) -> Result<Plan<'static, Undone>> {
    let mut engine = Engine::new(context, &[])?;
    // A preview too, because it would show an earlier run.
    report_killed_runs(&mut engine, context)?;
    let policy = &engine.policy;
    let Found { undoes, changes, truncated, snapshots, directory } =
        find(&policy.ledger, &args.named, &policy.actor, args.git)?;
    let recovery = |snapshot| Recovery::find(Store::of_home(&policy.cp_home), snapshot);
    let recoveries = snapshots.into_values().map(recovery).collect::<Result<Vec<_>>>()?;
    let history: Vec<String> =
        recoveries.iter().flat_map(Recovery::paths).map(|path| path.display().to_string()).collect();
    // A preview takes no lock, because that would create a file.
    let lock = (!args.write.dry_run).then(|| locked(policy)).transpose()?;
    let mut undo =
        Undo::of(policy, changes).map_err(|error| elsewhere(error, policy, directory.as_deref(), &args.named))?;
    let by_others = undo.left_out.iter().filter(|left| left.reason == CHANGED).map(|left| left.path.as_str());
    let by_others: Vec<&str> = by_others.collect();
    if let Some(first) = by_others.first().filter(|_| !args.except_changed) {
        let more = if by_others.len() > 1 { format!(" (and {} more)", by_others.len() - 1) } else { String::new() };
        return Err(Error::new(Code::Conflict, format!("{first}{more} {CHANGED}"))
            .with("reason", "changed")
            .with("path", *first)
            .with("files", by_others)
            .hint(
                "nothing was changed; undo first what was done later, or with --except-changed these files stay as they \
                 are and the others are put back",
            ));
    }
    let state = |state: &Option<FileState>| serde_json::to_value(state).unwrap_or_default();
    let of_file = |step: &FileChange| {
        let action = if step.after.is_some() { "restore" } else { "remove" };
        Change { after: state(&step.after), ..Change::new(action, "file", &step.path, state(&step.before)) }
    };
    let of_history = history.iter().map(|path| {
        let is_new = recoveries.iter().any(|recovery| recovery.removes(Path::new(path)));
        Change::new(if is_new { "remove" } else { "restore" }, "history", path, Value::Null)
    });
    let changes: Vec<Change> = undo.steps.iter().map(of_file).chain(of_history).collect();
    let restored = |change: &Change| Restored { path: change.id.clone(), action: change.action.clone() };
    let failed = |left: &LeftOut| Outcome::new(&left.path, Some(&Error::new(Code::Conflict, left.reason.as_str())));
    let undone = Undone {
        undoes,
        files: changes.iter().map(restored).collect(),
        left_out: std::mem::take(&mut undo.left_out),
        truncated,
        receipt: None,
        untrusted: ["/files", "/left_out"].map(str::to_owned).to_vec(),
    };
    if changes.is_empty() {
        return Plan::nothing(undone);
    }
    let failed = undone.left_out.iter().map(failed).collect();
    Plan::changes(Changes { changes, failed }, move |_| {
        let _lock = lock;
        let receipt = undo.carry_out(&mut engine, &json!({ "undoes": undone.undoes, "history": history }))?;
        recoveries.iter().try_for_each(Recovery::apply)?;
        Ok(Undone { receipt: Some(receipt), ..undone })
    })
}

/// The refusal to write a path, with the directory in which the undo is allowed if it is not this one.
fn elsewhere(error: Error, policy: &Policy, directory: Option<&str>, named: &str) -> Error {
    if error.code() != Code::Forbidden {
        return error;
    }
    let line = |directory: &str| format!("cd {} && cp-exec undo {named}", cp_common::wire::quoted(directory));
    let other = directory.filter(|directory| Path::new(directory) != policy.base);
    if let Some(other) = other.filter(|other| Path::new(other).is_dir()) {
        return error.hint(format!("it ran in another directory: {}", line(other)));
    }
    let details = error.details();
    let path = details.get("path").and_then(Value::as_str).unwrap_or_default();
    let gone = Path::new(path).ancestors().skip(1).take_while(|above| !above.exists()).last();
    let Some(gone) = gone.and_then(Path::to_str).filter(|gone| !gone.is_empty()) else { return error };
    let line = line(other.unwrap_or(gone));
    Error::not_found(format!("{path} was in {gone}, which was moved or removed since"))
        .hint(format!("move the directory back to that path, then undo there: {line}"))
}

/// What the ledger has of the runs and edits.
#[derive(Default)]
struct Found {
    undoes: Vec<u64>,
    /// The changes, the oldest first.
    changes: Vec<Recorded>,
    truncated: bool,
    /// The working directory of the run.
    directory: Option<String>,
    /// What was kept of each repository before the first of them.
    snapshots: BTreeMap<PathBuf, Snapshot>,
}

/// The members of an entry that are needed; the files may be a blob.
#[derive(Deserialize)]
struct Data<'a> {
    intent: Option<u64>,
    cwd: Option<String>,
    operation: Option<String>,
    call: Option<String>,
    #[serde(borrow)]
    files: Option<&'a RawValue>,
    #[serde(default)]
    truncated: bool,
    code: Option<IgnoredAny>,
    enforcement: Option<IgnoredAny>,
    #[serde(default)]
    snapshots: Vec<Snapshot>,
}

impl Data<'_> {
    /// True for the result of a killed run. One that ended has no code, and one that did not start no enforcement.
    fn is_killed(&self) -> bool {
        self.code.is_some() && self.enforcement.is_some()
    }
}

/// What the ledger has of what is named. `with_git`: runs that changed only repositories count too.
fn find(ledger: &Path, named: &str, actor: &Actor, with_git: bool) -> Result<Found> {
    let is_all = named == "all";
    let [run, session] = [&actor.run, &actor.session].map(|name| name.as_deref().map(quoted));
    if is_all && run.is_none() && session.is_none() {
        return Err(Error::usage("`all` undoes a run or a session").hint("name it with --run or --session"));
    }
    let entry = if is_all { None } else { entry(ledger, named, with_git)? };
    let mut found = Found::default();
    newest(ledger, usize::MAX, |_, line| {
        let Some(data) = data_of(line) else { return Ok(None) };
        if line.is_event("exec.intent") {
            found.directory = found.directory.take().or_else(|| data.cwd.clone().filter(|_| entry == Some(line.seq())));
            return Ok(None::<()>);
        }
        let is_of = |name: &str, wanted: &Option<Vec<u8>>| wanted.is_none() || line.member(name) == wanted.as_deref();
        let is_undo = data.operation.as_deref() == Some("undo");
        let is_meant = match entry {
            Some(entry) => line.seq() == entry || data.intent == Some(entry),
            None if is_all => !is_undo && is_of("run", &run) && is_of("session", &session),
            None => !is_undo && data.call.as_deref() == Some(named),
        };
        if is_meant && line.is_event("exec.changes") {
            found.changes.push(Recorded { time: line.ts().to_owned(), files: files(ledger, line, &data)? });
            found.truncated |= data.truncated;
        } else if is_meant && with_git {
            found.snapshots.extend(data.snapshots.iter().map(|one| (one.repository.clone(), one.clone())));
        } else if is_meant && data.is_killed() && !is_all && found.changes.is_empty() {
            let message = format!("run {} was killed before it ended; {NOT_RECORDED}", data.intent.unwrap_or_default());
            return Err(Error::not_found(message).hint("name an earlier run, or put back its repository with --git"));
        } else {
            return Ok(None);
        }
        let seq = data.intent.unwrap_or(line.seq());
        if found.undoes.last() != Some(&seq) {
            found.undoes.push(seq);
        }
        Ok(None)
    })?;
    if found.undoes.is_empty() && !is_all {
        let error = Error::not_found(format!("no file changes are recorded: {named}")).in_file(ledger);
        let of_run = format!("to undo a whole run: cp-exec --run {} undo all", cp_common::wire::quoted(named));
        return Err(if named.starts_with("RUN-") { error.hint(of_run) } else { error });
    }
    found.changes.reverse();
    Ok(found)
}

/// The intent of a run, or the entry of an edit or an undo, that is named as `last` or by an entry; `None` if it can
/// only be a call.
fn entry(ledger: &Path, named: &str, with_git: bool) -> Result<Option<u64>> {
    let digits = named.strip_prefix("sha256:").unwrap_or(named);
    let seq = named.parse::<u64>().ok();
    newest(ledger, usize::MAX, |_, line| {
        let Some(data) = data_of(line) else { return Ok(None) };
        let is_meant = match named {
            "last" if with_git => line.is_event("exec.result"),
            "last" => data.is_killed() || line.is_event("exec.changes") && data.operation.as_deref() != Some("undo"),
            // The beginning of a hash may consist of digits only.
            _ => seq == Some(line.seq()) || digits.len() >= 8 && line.hash_hex().starts_with(digits.as_bytes()),
        };
        Ok(is_meant.then(|| data.intent.unwrap_or(line.seq())))
    })
}

/// What an entry about a run or an edit records.
fn data_of<'l>(line: &Line<'l>) -> Option<Data<'l>> {
    let events = ["exec.intent", "exec.changes", "exec.result"];
    let data = line.member("data").filter(|_| events.iter().any(|event| line.is_event(event)));
    serde_json::from_slice(data?).ok()
}

/// The changes that an entry lists.
fn files(ledger: &Path, line: &Line<'_>, data: &Data<'_>) -> Result<Vec<FileChange>> {
    let bytes = data.files.map_or("[]", RawValue::get).as_bytes();
    let whole = blob::resolve(ledger, bytes)?;
    serde_json::from_slice(whole.as_deref().unwrap_or(bytes))
        .map_err(|e| Error::new(Code::Integrity, format!("entry {}: {e}", line.seq())).in_file(ledger))
}
