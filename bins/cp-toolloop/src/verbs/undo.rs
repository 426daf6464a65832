//! `cp-toolloop undo`: restore every file that the file tools of a run changed, or none of them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::context::options::AppendOptions;
use cp_common::coprocess::{self, Part};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::state::changes::{Change, Effect, Kept, Made, effective, hash};
use crate::state::plan::RunFiles;
use crate::state::step_log::{self, StepLog};
use crate::state::summary::first_entry;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "undo",
    class: Class::Append,
    output: "undone",
    examples: &[
        // A run that creates a file, which undo removes.
        r#"printf '{"tool_calls":[{"name":"filesystem","input":{"operation":"write_file","path":"new","content":"x"}}]}\n{"content":"Done."}\n' >script; mkdir w && cd w && cp-toolloop --backend stub --stub-script ../script -- hello; cp-toolloop undo RUN-"#,
    ],
    events: &["exec.operation", "undone"],
    ..VerbDoc::EMPTY
};

/// Restore the files that the file tools of a run changed
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, or the path of its ledger
    // Not `run`, because that is a common option of all programs.
    #[arg(id = "named", value_name = "RUN")]
    run: String,
    /// Only the changes of this call
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// Leave files as they are that changed after the run
    #[arg(long)]
    except_changed: bool,
    #[command(flatten)]
    append: AppendOptions,
}

/// The result of the verb.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Undone {
    /// The run.
    run_id: String,
    /// The restored files.
    files: Vec<File>,
    /// The files that stay as they are, because they changed after the run.
    #[serde(default)]
    left_out: Vec<String>,
    /// What the run changed by commands and by tools of servers, which is not undone.
    #[serde(default)]
    effects: Vec<Effect>,
    /// The ledger of the changes.
    ledger: String,
    /// True for `--dry-run`.
    #[serde(skip)]
    is_shown: bool,
}

/// A restored file.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct File {
    path: String,
    /// restore, or remove for a file that the run created.
    action: String,
    /// The hash of its content now; null if it does not exist.
    sha256: Option<String>,
}

impl Reply for Undone {
    fn text(&self) -> String {
        let lines = self.files.iter().map(|file| format!("{} {}", file.action, file.path));
        let left_out = self.left_out.iter().map(|path| format!("left out {path} (changed after the run)"));
        let is = if self.is_shown { "would be undone; files to put back" } else { "is undone; files put back" };
        let last = format!("{} {is}: {}", self.run_id, self.files.len());
        let effects = self.effects.iter().map(Effect::text);
        lines.chain(left_out).chain(effects).chain([last]).collect::<Vec<_>>().join("\n")
    }
}

/// The plan of an undo.
struct Plan {
    files: RunFiles,
    steps: Vec<Step>,
    /// The files that changed after the run.
    left_out: Vec<String>,
    made: Made,
}

/// A file to restore.
struct Step {
    path: PathBuf,
    /// Its current content and permissions.
    now: Option<(String, String)>,
    /// Its earlier content.
    to: Option<Kept>,
    /// Its new permissions; `None` to keep them.
    permissions: Option<String>,
}

/// Runs the verb. No confirmation is required, because the ledger stores the content that is replaced.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // The path is made absolute, because the directory changes.
    let path = args.run.contains('/').then(|| std::path::absolute(&args.run)).transpose()?;
    let run = path.map_or_else(|| args.run.clone(), |path| path.display().to_string());
    let AppendOptions { dry_run, request_id } = &args.append;
    let undone = if *dry_run {
        Plan::of(args, context)?.result(true)
    } else {
        let asked = ("undo", run, &args.call, args.except_changed);
        idempotency::once(request_id.as_deref(), &asked, context, |context| undo(args, context))?
    };
    context.out.answer(&undone)
}

/// Restores the files.
fn undo(args: &Args, context: &mut Context) -> Result<Undone> {
    let plan = Plan::of(args, context)?;
    let (undone, files) = (plan.result(false), &plan.files);
    plan.made.sweep();
    if plan.steps.is_empty() {
        return Ok(undone);
    }
    // The lock prevents a resume during the undo.
    let _owned = if files.state().exists() { Some(StepLog::open(files, &context.home)?) } else { None };
    put_back(files, &plan.steps, context)?;
    plan.remove_directories();
    let entry = Entry::new("undone").agent(context.agent(None)).run(&files.run).with("call", &args.call);
    Ledger::open_existing(&files.ledger, Sync::Line)?.append(entry.with("files", &undone.files))?;
    Ok(undone)
}

impl Plan {
    /// Plans the undo, after a check that every file is as the run left it and that its earlier content is stored.
    fn of(args: &Args, context: &Context) -> Result<Self> {
        let files = RunFiles::find(&args.run, context)?;
        if step_log::is_running(&files.state()) {
            return Err(Error::new(Code::Conflict, format!("{} is under way", files.run))
                .hint("wait for it, or end it with `cp-toolloop cancel`"));
        }
        let (call, mut later) = (args.call.as_deref(), None);
        let made = Made::read(&files, call, context)?;
        let mut plan = Self { files, steps: Vec::new(), left_out: Vec::new(), made };
        for (path, changes) in &plan.made.files {
            let is_meant = |change: &&Change| call.is_none() || change.call.as_deref() == call;
            let meant: Vec<&Change> = changes.iter().filter(is_meant).collect();
            let Some(last) = changes.iter().rposition(|change| is_meant(&change)) else { continue };
            let now = state_of(Path::new(path))?;
            if let Some(made) = effective(&meant).filter(|made| is_as_left(made, now.as_ref())) {
                plan.steps.extend(step(&made, now));
            } else {
                plan.left_out.push(path.clone());
                later = later.or_else(|| changes[last + 1..].iter().rev().find_map(|change| change.call.clone()));
            }
        }
        plan.check_changed(args.except_changed, later)?;
        plan.steps.iter().try_for_each(|step| step.check_kept(&plan.files.ledger))?;
        Ok(plan)
    }

    /// The result of the steps; `is_shown` if they are not performed.
    fn result(&self, is_shown: bool) -> Undone {
        let (run_id, ledger) = (self.files.run.clone(), self.files.ledger.display().to_string());
        let files = self.steps.iter().map(Step::done).collect();
        let effects = self.made.effects.clone();
        Undone { run_id, files, left_out: self.left_out.clone(), effects, ledger, is_shown }
    }

    /// Refuses to lose changes that were made after the run; `later` is a call of the run that made one.
    fn check_changed(&self, except_changed: bool, later: Option<String>) -> Result<()> {
        let Some(path) = self.left_out.first().filter(|_| !except_changed) else { return Ok(()) };
        let (more, run) = (self.left_out.len() - 1, &self.files.run);
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let by = later.as_ref().map(|call| format!(" by the later call {call} of the run")).unwrap_or_default();
        let hint = match &later {
            Some(call) => format!("undo that call first with --call {call}, or all calls without --call"),
            None => format!(
                "with --except-changed these files stay as they are; `cp-toolloop show {run}` has the hashes of earlier contents, and `cp-log blob` prints them"
            ),
        };
        Err(Error::new(Code::Conflict, format!("{path}{more} was changed since{by}, and that would be lost"))
            .with("reason", "changed")
            .with("path", path.as_str())
            .with("call", later)
            .with("files", json!(self.left_out))
            .hint(format!("nothing was changed; {hint}")))
    }

    /// Removes the directories that the run created and that are empty without the removed files.
    fn remove_directories(&self) {
        let removed = self.steps.iter().filter(|step| step.to.is_none());
        let around: BTreeSet<&Path> = removed.flat_map(|step| step.path.ancestors().skip(1)).collect();
        // The innermost directories come first. A directory with other entries stays.
        for directory in around.into_iter().rev().filter(|directory| self.made.directories.contains(*directory)) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The current content and permissions of a file; `None` if it does not exist.
fn state_of(path: &Path) -> Result<Option<(String, String)>> {
    let failed = |e: std::io::Error| Error::io("looking at the file", e).in_file(path);
    let meta = match std::fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        meta => meta.map_err(failed)?,
    };
    let permissions = format!("{:o}", meta.permissions().mode() & 0o777);
    // A link or a directory in its place is another change.
    let digest = if meta.is_file() { blob::digest(path).map_err(failed)? } else { None };
    Ok(Some((digest.map(|(hash, _)| hash.to_string()).unwrap_or_default(), permissions)))
}

/// True if a file is in a state of the run, so that no other change is lost.
fn is_as_left(made: &[&Change], now: Option<&(String, String)>) -> bool {
    let (Some(first), Some(last)) = (made.first(), made.last()) else { return false };
    let states = [&last.write.after, &last.write.before, &first.write.before];
    states.into_iter().any(|state| hash(state.as_ref()) == now.map(|(hash, _)| hash.as_str()))
}

/// The restore step of a file; `None` if it has its earlier content.
fn step(made: &[&Change], now: Option<(String, String)>) -> Option<Step> {
    let first = made.first()?;
    let to = first.write.before.clone();
    // Permissions that the run did not change are kept.
    let wanted = to.as_ref().and_then(|to| to.permissions.clone());
    let states = made.iter().flat_map(|change| [&change.write.before, &change.write.after]).flatten();
    let touched = now.is_none() || states.into_iter().any(|state| state.permissions != wanted);
    let permissions = wanted.filter(|_| touched);
    let same = hash(to.as_ref()) == now.as_ref().map(|(hash, _)| hash.as_str());
    let kept = permissions.is_none() || permissions.as_ref() == now.as_ref().map(|(_, permissions)| permissions);
    (!same || !kept).then(|| Step { path: PathBuf::from(&first.write.path), now, to, permissions })
}

impl Step {
    /// Fails if the earlier content is not stored.
    fn check_kept(&self, ledger: &Path) -> Result<()> {
        let Some(kept) = &self.to else { return Ok(()) };
        blob::load(ledger, &hash_of(kept)?).map(drop).map_err(|e| {
            let path = self.path.display().to_string();
            Error::new(Code::Integrity, format!("what {path} held is lost: {}", e.message())).with("path", path)
        })
    }

    fn done(&self) -> File {
        let action = if self.to.is_some() { "restore" } else { "remove" };
        let sha256 = self.to.as_ref().map(|to| to.blob.clone());
        File { path: self.path.display().to_string(), action: action.to_owned(), sha256 }
    }
}

/// Restores the files by one operation of cp-exec, under the policy and in the ledger of the run.
fn put_back(files: &RunFiles, steps: &[Step], context: &mut Context) -> Result<()> {
    let restore = |step: &Step| {
        json!({
            "path": step.path.display().to_string(),
            "from": step.now.as_ref().map(|(hash, _)| hash),
            "to": step.to.as_ref().map(|to| &to.blob),
            "permissions": step.permissions,
        })
    };
    let arguments = json!({ "files": steps.iter().map(restore).collect::<Vec<_>>() });
    let request = json!({ "tool": "filesystem", "operation": "restore_files", "arguments": arguments });
    // `.` in the policy is the directory of the run, and its governed tree is the tree of the run.
    let outside = context.options.clone();
    (context.options.ledger, context.options.run) = (Some(files.ledger.clone()), Some(files.run.clone()));
    let start = first_entry(&files.ledger)?.map(|entry| entry.data).unwrap_or_default();
    let [base, root] = ["base", "root"].map(|name| start[name].as_str().map(PathBuf::from));
    (context.options.base, context.options.root) = (base, root);
    let flags = context.handed_on();
    context.options = outside;
    let argv = [vec![coprocess::find("cp-exec")?.into_os_string(), "--rows".into()], flags].concat();
    let mut part = Part::start(&argv)?;
    part.child().write(format!("{request}\n").as_bytes())?;
    part.child().close_input();
    part.receive(|_, _| Ok(()))?;
    part.child().wait().map(drop)
}

fn hash_of(kept: &Kept) -> Result<Hash> {
    Hash::parse(&kept.blob).ok_or_else(|| Error::new(Code::Integrity, "the ledger names a blob by no valid hash"))
}
