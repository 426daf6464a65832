//! `cp-toolloop undo`: lets `cp-exec undo` restore every file that a run changed, or none of them.

use std::path::PathBuf;

use cp_common::context::options::AppendOptions;
use cp_common::coprocess::ask_with;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::changes::{Effect, unknown};
use crate::state::ledger::start_of;
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
    events: &["exec.changes"],
    ..VerbDoc::EMPTY
};

/// Restore the files that the file tools and the commands of a run changed
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, or the path of its ledger
    // Not `run`, because that is a common option of all programs.
    #[arg(id = "named", value_name = "RUN")]
    run: String,
    /// Only the changes of this call
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// Leave files as they are that others changed
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
    /// The restored paths.
    files: Vec<File>,
    /// The paths that are not restored.
    left_out: Vec<LeftOut>,
    /// Commands and calls of servers' tools whose changes are not known, and not undone.
    effects: Vec<Effect>,
    /// The ledger of the changes.
    ledger: String,
    /// True for `--dry-run`.
    #[serde(skip)]
    is_shown: bool,
}

/// A restored path.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct File {
    path: String,
    /// restore, or remove for a path that the run created.
    action: String,
}

/// A path that is not restored.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeftOut {
    path: String,
    reason: String,
}

impl Reply for Undone {
    fn text(&self) -> String {
        let lines = self.files.iter().map(|file| format!("{} {}", file.action, file.path));
        let left_out = self.left_out.iter().map(|left| format!("left out {} ({})", left.path, left.reason));
        let is = if self.is_shown { "would be undone; paths to put back" } else { "is undone; paths put back" };
        let last = format!("{} {is}: {}", self.run_id, self.files.len());
        let effects = self.effects.iter().map(Effect::text);
        lines.chain(left_out).chain(effects).chain([last]).collect::<Vec<_>>().join("\n")
    }
}

/// Runs the verb. No confirmation is required, because cp-exec keeps what it replaces, and the undo can be undone.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // The path is made absolute, because the directory changes.
    let path = args.run.contains('/').then(|| std::path::absolute(&args.run)).transpose()?;
    let run = path.map_or_else(|| args.run.clone(), |path| path.display().to_string());
    let AppendOptions { dry_run, request_id } = &args.append;
    let undone = if *dry_run {
        undo(args, context)?
    } else {
        let asked = ("undo", run, &args.call, args.except_changed);
        idempotency::once(request_id.as_deref(), &asked, context, |context| undo(args, context))?
    };
    context.out.answer(&undone)
}

/// Asks cp-exec for the plan, and to carry it out.
fn undo(args: &Args, context: &mut Context) -> Result<Undone> {
    let files = RunFiles::find(&args.run, context)?;
    if step_log::is_running(&files.state()) {
        return Err(Error::new(Code::Conflict, format!("{} is under way", files.run))
            .hint("wait for it, or end it with `cp-toolloop cancel`"));
    }
    let is_shown = args.append.dry_run;
    // The lock prevents a resume during the undo.
    let is_locked = !is_shown && files.state().exists();
    let _lock = is_locked.then(|| StepLog::open(&files, &context.home)).transpose()?;
    let plan = cp_exec_undo(&files, args, &["--dry-run"], context)?;
    let list = |at: &str| plan.pointer(at).and_then(Value::as_array).cloned().unwrap_or_default().into_iter();
    let text = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let restored =
        list("/preview/changes").map(|file| File { path: text(&file, "/id"), action: text(&file, "/action") });
    let failed = list("/preview/failed").map(|left| (text(&left, "/target"), text(&left, "/error/message")));
    let left = list("/left_out").map(|left| (text(&left, "/path"), text(&left, "/reason")));
    let undone = Undone {
        run_id: files.run.clone(),
        files: restored.collect(),
        left_out: failed.chain(left).map(|(path, reason)| LeftOut { path, reason }).collect(),
        effects: unknown(&files, args.call.as_deref())?,
        ledger: files.ledger.display().to_string(),
        is_shown,
    };
    if let Some(token) = plan["confirm_token"].as_str().filter(|_| !is_shown) {
        cp_exec_undo(&files, args, &["--confirm", token], context)?;
    }
    Ok(undone)
}

/// Runs `cp-exec undo` under the policy and on the ledger of the run.
fn cp_exec_undo(files: &RunFiles, args: &Args, more: &[&str], context: &mut Context) -> Result<Value> {
    // `.` in the policy is the directory of the run, and its governed tree is the tree of the run.
    let outside = context.options.clone();
    let (_, start) = start_of(&files.ledger)?.unwrap_or_default();
    let [base, root] = ["base", "root"].map(|name| start[name].as_str().map(PathBuf::from));
    let options = &mut context.options;
    (options.ledger, options.run, options.session) = (Some(files.ledger.clone()), Some(files.run.clone()), None);
    (options.base, options.root) = (base, root);
    let flags = context.handed_on();
    context.options = outside;
    let except = args.except_changed.then_some("--except-changed");
    let named = args.call.as_deref().unwrap_or("all");
    let words: Vec<&str> = ["undo", named].into_iter().chain(except).chain(more.iter().copied()).collect();
    ask_with("cp-exec", &words, b"", flags)
}
