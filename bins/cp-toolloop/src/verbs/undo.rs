//! `cp-toolloop undo`: restore every file that the file tools of a run changed, or none of them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::context::options::AppendOptions;
use cp_common::coprocess::{self, Part};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use cp_ledger::{Entry, Ledger, Sync, read};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::state::changes::{Change, Kept, changes, effective, hash};
use crate::state::plan::RunFiles;
use crate::state::step_log::{self, StepLog};

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
    /// Only the changes of this call, or of the agent that it started
    #[arg(long, value_name = "ID")]
    call: Option<String>,
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
        let is = if self.is_shown { "would be undone; files to put back" } else { "is undone; files put back" };
        let last = format!("{} {is}: {}", self.run_id, self.files.len());
        lines.chain([last]).collect::<Vec<_>>().join("\n")
    }
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
    /// The ledger that stores the earlier content.
    ledger: PathBuf,
}

/// Runs the verb. No confirmation is required, because the ledger stores the content that is replaced.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // The path is made absolute, because the directory changes.
    let path = args.run.contains('/').then(|| std::path::absolute(&args.run)).transpose()?;
    let run = path.map_or_else(|| args.run.clone(), |path| path.display().to_string());
    let AppendOptions { dry_run, request_id } = &args.append;
    let undone = if *dry_run {
        let (files, steps) = plan(args, context)?;
        result(&files, &steps, true)
    } else {
        let asked = ("undo", run, &args.call);
        idempotency::once(request_id.as_deref(), &asked, context, |context| undo(args, context))?
    };
    context.out.answer(&undone)
}

/// The run, and the steps that undo its changes.
fn plan(args: &Args, context: &Context) -> Result<(RunFiles, Vec<Step>)> {
    let files = RunFiles::find(&args.run, context)?;
    if step_log::is_running(&files.state()) {
        return Err(Error::new(Code::Conflict, format!("{} is under way", files.run))
            .hint("wait for it, or end it with `cp-toolloop cancel`"));
    }
    let steps = steps(&files, args.call.as_deref(), context)?;
    Ok((files, steps))
}

/// The result of the steps; `is_shown` if they are not performed.
fn result(files: &RunFiles, steps: &[Step], is_shown: bool) -> Undone {
    let restored = steps.iter().map(Step::done).collect();
    Undone { run_id: files.run.clone(), files: restored, ledger: files.ledger.display().to_string(), is_shown }
}

/// Restores the files.
fn undo(args: &Args, context: &mut Context) -> Result<Undone> {
    let (files, steps) = plan(args, context)?;
    let undone = result(&files, &steps, false);
    if steps.is_empty() {
        return Ok(undone);
    }
    // The lock prevents a resume during the undo.
    let _owned = if files.state().exists() { Some(StepLog::open(&files, &context.home)?) } else { None };
    put_back(&files, &steps, context)?;
    let entry = Entry::new("undone").agent(context.agent(None)).run(&files.run).with("call", &args.call);
    Ledger::open_existing(&files.ledger, Sync::Line)?.append(entry.with("files", &undone.files))?;
    Ok(undone)
}

/// Plans the undo, after a check that every file is as the run left it and that its earlier content is stored.
fn steps(files: &RunFiles, call: Option<&str>, context: &Context) -> Result<Vec<Step>> {
    let (mut steps, mut lost) = (Vec::new(), Vec::new());
    for (path, changes) in changes(files, call, context)? {
        let now = state_of(Path::new(&path))?;
        match effective(&changes).filter(|made| is_as_left(made, now.as_ref())) {
            None => lost.push((path, now)),
            Some(made) => steps.extend(step(&made, now)),
        }
    }
    if let Some((path, _)) = lost.first() {
        let more = if lost.len() > 1 { format!(" (and {} more)", lost.len() - 1) } else { String::new() };
        let paths: Vec<&String> = lost.iter().map(|(path, _)| path).collect();
        return Err(Error::new(Code::Conflict, format!("{path}{more} was changed since, and that would be lost"))
            .with("reason", "changed")
            .with("path", path.as_str())
            .with("files", json!(paths))
            .hint(format!(
                "nothing was changed; `cp-toolloop show {}` has the hash of the earlier content of each file, and `cp-log blob` prints it",
                files.run
            )));
    }
    for step in &steps {
        if let Some(kept) = &step.to {
            blob::load(&step.ledger, &hash_of(kept)?).map_err(|e| {
                Error::new(Code::Integrity, format!("what {} held is lost: {}", step.path.display(), e.message()))
                    .with("path", step.path.display().to_string())
            })?;
        }
    }
    Ok(steps)
}

/// The current content and permissions of a file; `None` if it does not exist.
fn state_of(path: &Path) -> Result<Option<(String, String)>> {
    let failed = |e: std::io::Error| Error::io("looking at the file", e).in_file(path);
    let meta = match std::fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        meta => meta.map_err(failed)?,
    };
    let permissions = format!("{:o}", meta.permissions().mode() & 0o777);
    // A link or a directory in its place is another change.
    let digest = if meta.is_file() { blob::digest(path).map_err(failed)? } else { None };
    Ok(Some((digest.map(|(hash, _)| hash.to_string()).unwrap_or_default(), permissions)))
}

/// True if a file is in a state of the run, so that no other change is lost.
fn is_as_left(made: &[&Change], now: Option<&(String, String)>) -> bool {
    let now = now.map(|(hash, _)| hash.as_str());
    let first = made.first().map(|change| &change.write);
    let last = made.last().map(|change| &change.write);
    let states = [
        last.and_then(|last| last.after.as_ref()),
        last.and_then(|last| last.before.as_ref()),
        first.and_then(|first| first.before.as_ref()),
    ];
    states.into_iter().any(|state| hash(state) == now)
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
    (!same || !kept).then(|| Step {
        path: PathBuf::from(&first.write.path),
        now,
        to,
        permissions,
        ledger: first.ledger.clone(),
    })
}

impl Step {
    fn action(&self) -> &'static str {
        if self.to.is_some() { "restore" } else { "remove" }
    }

    fn done(&self) -> File {
        let sha256 = self.to.as_ref().map(|to| to.blob.clone());
        File { path: self.path.display().to_string(), action: self.action().to_owned(), sha256 }
    }
}

/// Restores the files by one operation of cp-exec, under the policy and in the ledger of the run.
fn put_back(files: &RunFiles, steps: &[Step], context: &mut Context) -> Result<()> {
    for step in steps.iter().filter(|step| step.ledger != files.ledger) {
        // The blobs of the agents' ledgers.
        if let Some(kept) = &step.to {
            blob::store(&files.ledger, &blob::load(&step.ledger, &hash_of(kept)?)?)?;
        }
    }
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
    // `.` in the policy is the directory of the run.
    let options =
        (context.options.ledger.replace(files.ledger.clone()), context.options.run.replace(files.run.clone()));
    let base = std::mem::replace(&mut context.options.base, base_of(&files.ledger)?);
    let flags = context.handed_on();
    (context.options.ledger, context.options.run) = options;
    context.options.base = base;
    let argv = [vec![coprocess::find("cp-exec")?.into_os_string(), "--rows".into()], flags].concat();
    let mut part = Part::start(&argv)?;
    part.child().write(format!("{request}\n").as_bytes())?;
    part.child().close_input();
    part.receive(|_, _| Ok(()))?;
    part.child().wait().map(drop)
}

/// The directory of `.` in the policy for a run.
fn base_of(ledger: &Path) -> Result<Option<PathBuf>> {
    #[derive(Deserialize)]
    struct Start {
        base: PathBuf,
    }
    let mut lines = read::lines(ledger)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored().filter(|line| line.is_event("run_start")) else { continue };
        let start = line.member("data").and_then(|data| serde_json::from_slice::<Start>(data).ok());
        return Ok(start.map(|start| start.base));
    }
    Ok(None)
}

fn hash_of(kept: &Kept) -> Result<Hash> {
    Hash::parse(&kept.blob).ok_or_else(|| Error::new(Code::Integrity, "the ledger names a blob by no valid hash"))
}
