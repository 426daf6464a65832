//! `cp-toolloop runs`: the runs of this home, the newest first. And `show`: the steps of a run; commands as command
//! lines, and changes of files as unified differences.

use std::cmp::Reverse;

use cp_common::clock::in_seconds;
use cp_common::context::options::{Pages, QueryOptions};
use cp_common::output::printable_line;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Approval, Reply};
use cp_common::{Context, Result};
use cp_ledger::read;
use serde::Serialize;
use serde_json::Value;

use crate::engine::print::command;
use crate::state::conversation::{Call, Conversation};
use crate::state::ledger::whole;
use crate::state::plan::RunFiles;
use crate::state::step_log;
use crate::state::summary::{Status, Summary, summary};

/// The entry of `runs` in `reference`.
pub(crate) const RUNS_DOC: VerbDoc = VerbDoc {
    examples: &["cp-toolloop --backend stub -- hello && cp-toolloop runs --limit 1"],
    sort: Some("started_at, descending"),
    ..VerbDoc::new("runs", Class::Query, "runs")
};

/// List the runs, the newest first
#[derive(clap::Args, Debug)]
pub(crate) struct RunsArgs {
    #[command(flatten)]
    query: QueryOptions,
}

impl Reply for Summary {
    fn text(&self) -> String {
        let started_at = in_seconds(&self.started_at);
        let words = [&self.id, &started_at, &name_of(self.status), self.code.as_deref().unwrap_or_default()];
        let name = self.name.iter().map(String::as_str);
        words.into_iter().filter(|word| !word.is_empty()).chain(name).collect::<Vec<_>>().join("  ")
    }
}

fn name_of(status: Status) -> String {
    serde_json::to_value(status).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Runs `runs`.
pub(crate) fn list(args: &RunsArgs, context: &mut Context) -> Result<()> {
    let pages = Pages::of("cp-toolloop runs", &(), &args.query)?;
    let mut runs: Vec<Summary> = Vec::new();
    for files in RunFiles::all(context) {
        match summary(&files) {
            Ok(summary) => runs.push(summary),
            Err(e) => context.warn(e.message()),
        }
    }
    let key = |run: &Summary| Reverse((run.started_at.clone(), run.id.clone()));
    runs.sort_by_key(key);
    context.out.answer(&pages.page(runs.into_iter().map(|run| (key(&run), run)))?)
}

/// The entry of `show` in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["cp-toolloop --backend stub -- hello && cp-toolloop show RUN-"],
    ..VerbDoc::new("show", Class::Query, "run")
};

/// Show the steps of a run, and the calls that wait for approval
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, its name, or the path of its ledger
    #[arg(id = "named", value_name = "RUN")]
    run: String,
}

/// A run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["steps", "pending"])))]
pub(crate) struct Shown {
    /// The run, in short.
    #[serde(flatten)]
    summary: Summary,
    /// Calls that have no result yet.
    pending: Vec<Pending>,
    /// The entries of the ledger, without secrets. Those of file tools have the `difference` of their files.
    steps: Vec<Value>,
    /// JSON Pointers to untrusted members.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 2],
}

/// A call without a result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Pending {
    /// Its id, for `--approve` and `--deny`.
    id: String,
    /// The tool.
    name: String,
    /// True if it was started.
    started: bool,
}

impl Reply for Shown {
    fn text(&self) -> String {
        let summary = &self.summary;
        let mut lines = vec![format!("{}  {}", summary.id, name_of(summary.status))];
        for step in &self.steps {
            lines.push(printable_line(&step_line(step)));
            let is_command = step["event"] == "exec.intent";
            lines.extend(is_command.then(|| format!("$ {}", command(&step["data"]))));
            lines.extend(step["difference"].as_str().into_iter().flat_map(str::lines).map(str::to_owned));
        }
        lines.extend(self.pending.iter().map(|call| format!("waits: {} {}", call.id, call.name)));
        lines.iter().map(|line| printable_line(line)).collect::<Vec<_>>().join("\n")
    }
}

/// An entry in one line.
fn step_line(step: &Value) -> String {
    let data = &step["data"];
    let of = |name: &str| data[name].as_str().unwrap_or_default();
    let [ts, event, message] = ["ts", "event", "message"].map(|name| step[name].as_str().unwrap_or_default());
    let about = match event {
        "tool_call" => format!("{}: {}", of("id"), command(&data["input"])),
        "approval.asked" => match serde_json::from_value::<Approval>(data["approval"].clone()) {
            Ok(asked) => format!("{}: {} ({})", of("call"), asked.subject(), asked.shown.why),
            Err(_) => message.to_owned(),
        },
        "approval.granted" => format!("{}: by {} ({}, {})", of("call"), of("by"), of("how"), of("scope")),
        "approval.denied" => format!("{}: by {}: {message}", of("call"), of("by")),
        _ => step["content"].as_str().and_then(|content| content.lines().next()).unwrap_or(message).to_owned(),
    };
    [ts, event, of("name"), &about].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Runs `show`.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let files = RunFiles::find(&args.run, context)?;
    let summary = summary(&files)?;
    let mut steps = Vec::new();
    let mut lines = files.ledger.exists().then(|| read::lines(&files.ledger)).transpose()?;
    while let Some(raw) = lines.as_mut().map_or(Ok(None), |lines| lines.next())? {
        if let Ok(mut step) = serde_json::from_slice::<Value>(raw.bytes) {
            if step["event"] == "exec.changes" {
                step["difference"] = whole(&files.ledger, &step["data"]["difference"])?;
                step["data"]["files"] = whole(&files.ledger, &step["data"]["files"])?;
            }
            steps.push(step);
        }
    }
    let pending = if files.state().exists() { pending(&files)? } else { Vec::new() };
    context.out.answer(&Shown { summary, pending, steps, untrusted: ["/steps", "/pending"] })
}

/// The calls that wait for approval, without their arguments, which are not redacted in the state file.
fn pending(files: &RunFiles) -> Result<Vec<Pending>> {
    let (_, conversation) = Conversation::of_steps(step_log::peek(files)?)?;
    let waiting = conversation.calls.into_iter().filter(|call| call.result.is_none());
    let pending = |call: Call| Pending { id: call.asked.id, name: call.asked.name, started: call.started };
    Ok(waiting.map(pending).collect())
}
