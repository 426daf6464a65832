//! `cp-toolloop undo`: put back what the file tools of a run changed: every file as it was before the first change, or none.

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

use crate::state::changes::{Change, Kept, changes, effective, hash, path_of};
use crate::state::files::RunFiles;
use crate::state::step_log::{self, StepLog};

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "undo",
    class: Class::Append,
    output: "undone",
    examples: &[
        // A run that makes a file, which is removed again.
        r#"printf '{"tool_calls":[{"name":"filesystem","input":{"operation":"write_file","path":"new","content":"x"}}]}\n{"content":"Done."}\n' >script; mkdir w && cd w && cp-toolloop --backend stub --stub-script ../script -- hello; cp-toolloop undo RUN-"#,
    ],
    events: &["exec.operation", "undone"],
    ..VerbDoc::EMPTY
};

/// Put back what the file tools of a run changed
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, or the path of its ledger
    // Not `run`: that is the option of every program which says what a command line belongs to.
    #[arg(id = "named", value_name = "RUN")]
    run: String,
    /// Only what this call changed; of a call of agent, what the agent changed
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
}

/// What was done.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Undone {
    /// The run.
    run_id: String,
    /// The files that were put back. None: they all were as before already.
    files: Vec<File>,
    /// The ledger that the changes are on.
    ledger: String,
    /// Whether that is only shown.
    #[serde(skip)]
    is_shown: bool,
}

/// A file that was put back.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct File {
    path: String,
    /// restore, or remove for one that the run had made.
    action: String,
    /// The hash of what it holds now; null: it is not there.
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

/// A file that is to be put back.
struct Step {
    path: PathBuf,
    /// What it holds now, and its permissions.
    now: Option<(String, String)>,
    /// What it held before.
    to: Option<Kept>,
    /// The permissions that it gets; none: those that it has.
    permissions: Option<String>,
    /// The ledger that keeps it.
    ledger: PathBuf,
}

/// Runs the verb. What it does is on the ledger with what the files held, so nothing is lost by it and no confirmation is asked for.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // A path means the same from every directory.
    let path = args.run.contains('/').then(|| std::path::absolute(&args.run)).transpose()?;
    let run = path.map_or_else(|| args.run.clone(), |path| path.display().to_string());
    let AppendOptions { dry_run, request_id } = &args.append;
    let undone = if *dry_run {
        Undone { is_shown: true, ..Undo::of(args, context)?.undone() }
    } else {
        let asked = ("undo", run, &args.call);
        idempotency::once(request_id.as_deref(), &asked, context, |context| Undo::of(args, context)?.done(context))?
    };
    context.out.answer(&undone)
}

/// A run, and what is to be done for it.
struct Undo<'a> {
    args: &'a Args,
    files: RunFiles,
    steps: Vec<Step>,
}

impl<'a> Undo<'a> {
    fn of(args: &'a Args, context: &Context) -> Result<Self> {
        let files = RunFiles::find(&args.run, context)?;
        if step_log::is_running(&files.state()) {
            return Err(Error::new(Code::Conflict, format!("{} is under way", files.run))
                .hint("wait for it, or end it with `cp-toolloop cancel`"));
        }
        let steps = steps(&files, args.call.as_deref(), context)?;
        Ok(Self { args, files, steps })
    }

    /// Puts the files back.
    fn done(self, context: &mut Context) -> Result<Undone> {
        let undone = self.undone();
        if self.steps.is_empty() {
            return Ok(undone);
        }
        // Nobody resumes the run meanwhile.
        let _owned = if self.files.state().exists() { Some(StepLog::open(&self.files, &context.home)?) } else { None };
        put_back(&self.files, &self.steps, context)?;
        let entry = Entry::new("undone").agent(context.agent(None)).run(&self.files.run).with("call", &self.args.call);
        Ledger::open_existing(&self.files.ledger, Sync::Line)?.append(entry.with("files", &undone.files))?;
        Ok(undone)
    }

    fn undone(&self) -> Undone {
        let files = self.steps.iter().map(Step::done).collect();
        let ledger = self.files.ledger.display().to_string();
        Undone { run_id: self.files.run.clone(), files, ledger, is_shown: false }
    }
}

/// What is to be done, once every file is seen to be as the run left it and what it held to be there.
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
                "nothing was changed; `cp-toolloop show {}` has the hash of what each file held, and `cp-log blob` prints it",
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

/// What a file holds now, and its permissions; none: it is not there.
fn state_of(path: &Path) -> Result<Option<(String, String)>> {
    let failed = |e: std::io::Error| Error::io("looking at the file", e).in_file(path);
    let meta = match std::fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        meta => meta.map_err(failed)?,
    };
    let permissions = format!("{:o}", meta.permissions().mode() & 0o777);
    // A link or a directory in its place is nothing that the run left.
    let digest = if meta.is_file() { blob::digest(path).map_err(failed)? } else { None };
    Ok(Some((digest.map(|(hash, _)| hash.to_string()).unwrap_or_default(), permissions)))
}

/// Whether a file is as the last change left it, or found it, or as it was before the first: nothing of others is lost then.
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

/// How a file gets back to what it was before the first of these changes; none: it is.
fn step(made: &[&Change], now: Option<(String, String)>) -> Option<Step> {
    let first = made.first()?;
    let to = first.write.before.clone();
    // Permissions that no change touched stay as whoever set them meanwhile wants them.
    let wanted = to.as_ref().and_then(|to| to.permissions.clone());
    let states = made.iter().flat_map(|change| [&change.write.before, &change.write.after]).flatten();
    let touched = now.is_none() || states.into_iter().any(|state| state.permissions != wanted);
    let permissions = wanted.filter(|_| touched);
    let same = hash(to.as_ref()) == now.as_ref().map(|(hash, _)| hash.as_str());
    let kept = permissions.is_none() || permissions.as_ref() == now.as_ref().map(|(_, permissions)| permissions);
    (!same || !kept).then(|| Step {
        path: path_of(first).to_owned(),
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

/// Has cp-exec put the files back, under the policy and on the ledger of the run, all of them in one operation.
fn put_back(files: &RunFiles, steps: &[Step], context: &mut Context) -> Result<()> {
    for step in steps.iter().filter(|step| step.ledger != files.ledger) {
        // What an agent's ledger keeps.
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
    // `.` of the policy is what it was for the run.
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

/// The directory that `.` meant for a run.
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
