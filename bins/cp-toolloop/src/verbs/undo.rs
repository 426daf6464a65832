//! `cp-toolloop undo`: lets `cp-exec undo` restore every file that a run changed, or none of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use cp_common::context::options::AppendOptions;
use cp_common::coprocess::ask_with;
use cp_common::output::printable_line;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{LedgerName, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::read;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::options::passed_on;
use crate::engine::print::command;
use crate::state::ledger::{data_of, start_of, whole};
use crate::state::plan::RunFiles;
use crate::state::step_log::{self, StepLog};

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &[
        // A run that creates a file, which undo removes.
        r#"printf '{"tool_calls":[{"name":"filesystem","input":{"operation":"write_file","path":"new","content":"x"}}]}\n{"content":"Done."}\n' >script; mkdir w && cd w && cp-toolloop --backend stub --stub-script ../script -- hello; cp-toolloop undo RUN-"#,
    ],
    events: &["exec.changes"],
    ..VerbDoc::new("undo", Class::Append, "undone")
};

/// Restore the files that tools and commands of a run changed
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
    #[serde(flatten)]
    ledger: LedgerName,
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

/// A killed command, or a call of a server's tool, whose changes are not known.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Effect {
    /// The call of the run that made it.
    call: Option<String>,
    /// The command line, or the tool of a server.
    command: String,
}

impl Reply for Undone {
    fn text(&self) -> String {
        let lines = self.files.iter().map(|file| format!("{} {}", file.action, file.path));
        let left_out = self.left_out.iter().map(|left| format!("left out {} ({})", left.path, left.reason));
        let is = if self.is_shown { "would be undone; paths to put back" } else { "is undone; paths put back" };
        let last = format!("{} {is}: {}", self.run_id, self.files.len());
        let effects = self.effects.iter().map(|effect| {
            let call = effect.call.as_ref().map(|call| format!("{call}: ")).unwrap_or_default();
            printable_line(&format!("not undone: {call}{}, whose changes are not known", effect.command))
        });
        lines.chain(left_out).chain(effects).chain([last]).collect::<Vec<_>>().join("\n")
    }
}

/// Runs the verb. No confirmation is required, because cp-exec keeps what it replaces, and the undo can be undone.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let files = RunFiles::find(&args.run, context)?;
    if step_log::is_running(&files.state()) {
        return Err(Error::new(Code::Conflict, format!("{} is under way", files.run))
            .hint("wait for it, or end it with `cp-toolloop cancel`"));
    }
    // `.` in the policy is the directory of the run, and its governed tree is the tree of the run.
    let (_, start) = start_of(&files.ledger)?.unwrap_or_default();
    let flags = passed_on(context, |options| {
        (options.ledger, options.run, options.session) = (Some(files.ledger.clone()), Some(files.run.clone()), None);
        [options.base, options.root] = ["base", "root"].map(|name| start[name].as_str().map(PathBuf::from));
    });
    // The path is made absolute, because the directory changes.
    let request = ("undo", std::path::absolute(&files.ledger)?, &args.call, args.except_changed);
    let preview = || Ok(Undone { is_shown: true, ..args.planned(&files, &flags)?.0 });
    idempotency::answer(&args.append, &request, context, preview, |context| {
        // The lock prevents a resume during the undo.
        let _lock = files.state().exists().then(|| StepLog::open(&files, &context.home)).transpose()?;
        let (undone, token) = args.planned(&files, &flags)?;
        token.map_or(Ok(()), |token| args.ask(&["--confirm", &token], &flags).map(drop))?;
        Ok(undone)
    })
}

impl Args {
    /// What an undo does now, and the token that carries it out, if there is anything to do.
    fn planned(&self, files: &RunFiles, flags: &[OsString]) -> Result<(Undone, Option<String>)> {
        let plan = self.ask(&["--dry-run"], flags)?;
        let list = |at: &str| plan.pointer(at).and_then(Value::as_array).into_iter().flatten();
        let text = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let restored =
            list("/preview/changes").map(|file| File { path: text(file, "/id"), action: text(file, "/action") });
        let failed = list("/preview/failed").map(|left| (text(left, "/target"), text(left, "/error/message")));
        let left = list("/left_out").map(|left| (text(left, "/path"), text(left, "/reason")));
        let undone = Undone {
            run_id: files.run.clone(),
            files: restored.collect(),
            left_out: failed.chain(left).map(|(path, reason)| LeftOut { path, reason }).collect(),
            effects: unknown(files, self.call.as_deref())?,
            ledger: files.ledger.as_path().into(),
            is_shown: false,
        };
        Ok((undone, plan["confirm_token"].as_str().map(str::to_owned)))
    }

    /// Runs `cp-exec undo` under the policy and on the ledger of the run.
    fn ask(&self, more: &[&str], flags: &[OsString]) -> Result<Value> {
        let except = self.except_changed.then_some("--except-changed");
        let named = self.call.as_deref().unwrap_or("all");
        let words: Vec<&str> = ["undo", named].into_iter().chain(except).chain(more.iter().copied()).collect();
        ask_with("cp-exec", &words, b"", flags.iter().cloned())
    }
}

/// True for the result of a command that was killed with its cp-exec.
fn is_killed(data: &Value) -> bool {
    !data["code"].is_null() && !data["enforcement"].is_null()
}

/// The effects of a run, or of one of its calls, whose changes are not known.
fn unknown(files: &RunFiles, call: Option<&str>) -> Result<Vec<Effect>> {
    let mut lines = read::lines(&files.ledger)?;
    let (mut effects, mut served, mut running) = (Vec::new(), Vec::new(), BTreeMap::new());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        let data: Value = data_of(&line);
        if line.is_event("run_start") {
            let tools = whole(&files.ledger, &data["tools"])?;
            served = tools.as_array().cloned().unwrap_or_default();
            served.retain(|tool| tool["kind"] == "mcp" && tool["read_only"] != true);
        } else if line.is_event("tool_call") && served.iter().any(|tool| tool["name"] == data["name"]) {
            effects.push(Effect { call: text(&data["id"]), command: text(&data["name"]).unwrap_or_default() });
        } else if line.is_event("exec.intent") {
            running.insert(line.seq(), Effect { call: text(&data["call"]), command: command(&data) });
        } else if line.is_event("exec.changes") || line.is_event("exec.result") && !is_killed(&data) {
            data["intent"].as_u64().and_then(|intent| running.remove(&intent));
        }
    }
    // Of these commands cp-exec has not recorded what they changed, because it was killed with them.
    effects.extend(running.into_values());
    effects.retain(|effect| call.is_none() || effect.call.as_deref() == call);
    Ok(effects)
}
