//! `cp-toolloop show`: the steps of a run; commands as command lines, and changes of files as unified differences.

use std::path::Path;

use cp_common::output::printable_line;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Approval, Reply, quoted};
use cp_common::{Context, Result};
use cp_ledger::blob;
use cp_ledger::read;
use serde::Serialize;
use serde_json::Value;

use crate::state::changes::command_line;
use crate::state::conversation::{Call, Conversation};
use crate::state::plan::RunFiles;
use crate::state::summary::{Summary, summary};

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "show",
    class: Class::Query,
    output: "run",
    examples: &["cp-toolloop --backend stub -- hello && cp-toolloop show RUN-"],
    ..VerbDoc::EMPTY
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
        let status = serde_json::to_value(summary.status).unwrap_or_default();
        let mut lines = vec![format!("{}  {}", summary.id, status.as_str().unwrap_or_default())];
        for step in &self.steps {
            lines.push(printable_line(&step_line(step)));
            let is_command = step["event"] == "exec.intent";
            lines.extend(is_command.then(|| format!("$ {}", command_line(step["data"].to_string().as_bytes()))));
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

/// A call in one line: the words of a command, or its arguments.
fn command(input: &Value) -> String {
    let words = input.get("argv").and_then(Value::as_array);
    match (words, input.get("command").and_then(Value::as_str)) {
        (Some(words), _) => words.iter().filter_map(Value::as_str).map(quoted).collect::<Vec<_>>().join(" "),
        (None, Some(command)) => command.to_owned(),
        (None, None) => input.to_string(),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let files = RunFiles::find(&args.run, context)?;
    let summary = summary(&files)?;
    let mut steps = Vec::new();
    let mut lines = files.ledger.exists().then(|| read::lines(&files.ledger)).transpose()?;
    while let Some(raw) = lines.as_mut().map_or(Ok(None), |lines| lines.next())? {
        if let Ok(mut step) = serde_json::from_slice::<Value>(raw.bytes) {
            if step["event"] == "exec.changes" {
                step["difference"] = difference(&files.ledger, &step["data"]["difference"])?;
            }
            steps.push(step);
        }
    }
    let pending = if files.state().exists() { pending(&files)? } else { Vec::new() };
    context.out.answer(&Shown { summary, pending, steps, untrusted: ["/steps", "/pending"] })
}

/// The difference in an entry, which may be a blob.
fn difference(ledger: &Path, difference: &Value) -> Result<Value> {
    let whole = blob::resolve(ledger, difference.to_string().as_bytes())?;
    Ok(whole.and_then(|whole| serde_json::from_slice(&whole).ok()).unwrap_or_else(|| difference.clone()))
}

/// The calls that wait for approval, without their arguments, which are not redacted in the state file.
fn pending(files: &RunFiles) -> Result<Vec<Pending>> {
    let waiting = Conversation::stored(files)?.calls.into_iter().filter(|call| call.result.is_none());
    let pending = |call: Call| Pending { id: call.asked.id, name: call.asked.name, started: call.started };
    Ok(waiting.map(pending).collect())
}
