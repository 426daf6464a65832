//! `cp-toolloop show`: the steps of a run; commands as command lines, and changes of files as unified differences.

use std::path::Path;

use cp_common::output::printable_line;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Approval, Reply, quoted};
use cp_common::{Context, Result};
use cp_ledger::read;
use cp_ledger::store::blob;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// The entries of the ledger, without secrets.
    steps: Vec<StepLine>,
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

/// An entry of the run's ledger.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StepLine {
    /// Its sequence number.
    seq: u64,
    /// Its time.
    ts: String,
    /// Its event.
    #[serde(default)]
    event: String,
    /// The turn of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<u64>,
    /// The text of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Box<RawValue>>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    /// The differences of the files that a file tool changed, without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
}

impl Reply for Shown {
    fn text(&self) -> String {
        let summary = &self.summary;
        let status = serde_json::to_value(summary.status).unwrap_or_default();
        let mut lines = vec![format!("{}  {}", summary.id, status.as_str().unwrap_or_default())];
        for step in &self.steps {
            lines.push(step.text());
            let data = step.data.as_ref().map_or("", |data| data.get());
            lines.extend((step.event == "exec.intent").then(|| format!("$ {}", command_line(data.as_bytes()))));
            lines.extend(step.difference.iter().flat_map(|difference| difference.lines()).map(str::to_owned));
        }
        lines.extend(self.pending.iter().map(|call| format!("waits: {} {}", call.id, call.name)));
        lines.iter().map(|line| printable_line(line)).collect::<Vec<_>>().join("\n")
    }
}

impl StepLine {
    fn text(&self) -> String {
        let data: Value = self.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or_default();
        let content: Option<Value> = self.content.as_ref().and_then(|content| serde_json::from_str(content.get()).ok());
        let of = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = of("name");
        let about = match self.event.as_str() {
            "tool_call" => Some(format!("{}: {}", of("id"), command(data.get("input").unwrap_or(&Value::Null)))),
            "approval.asked" => {
                let asked =
                    data.get("approval").and_then(|asked| serde_json::from_value::<Approval>(asked.clone()).ok());
                asked.map(|asked| format!("{}: {} ({})", of("call"), asked.subject(), asked.shown.why))
            }
            "approval.granted" => Some(format!("{}: by {} ({}, {})", of("call"), of("by"), of("how"), of("scope"))),
            "approval.denied" => {
                Some(format!("{}: by {}: {}", of("call"), of("by"), self.message.as_deref().unwrap_or_default()))
            }
            _ => None,
        };
        if let Some(about) = about {
            let head = [self.ts.as_str(), self.event.as_str(), name].join(" ");
            return format!("{} {}", head.trim_end(), printable_line(&about));
        }
        let text = match (&content, &self.message) {
            (Some(Value::String(content)), _) => content.lines().next().unwrap_or_default().to_owned(),
            (_, Some(message)) => message.clone(),
            _ => String::new(),
        };
        let words = [self.ts.as_str(), self.event.as_str(), name, text.as_str()];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }
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
        if let Ok(mut step) = serde_json::from_slice::<StepLine>(raw.bytes) {
            if let ("exec.changes", Some(data)) = (step.event.as_str(), &step.data) {
                step.difference = difference(&files.ledger, data.get())?;
            }
            steps.push(step);
        }
    }
    let pending = if files.state().exists() { pending(&files)? } else { Vec::new() };
    context.out.answer(&Shown { summary, pending, steps, untrusted: ["/steps", "/pending"] })
}

/// The difference in the data of an entry, which may be a blob.
fn difference(ledger: &Path, data: &str) -> Result<Option<String>> {
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    let difference = data.get("difference").cloned().unwrap_or_default();
    let whole = blob::resolve(ledger, difference.to_string().as_bytes())?;
    let difference = whole.and_then(|whole| serde_json::from_slice(&whole).ok()).unwrap_or(difference);
    Ok(difference.as_str().map(str::to_owned))
}

/// The calls that wait for approval, without their arguments, which are not redacted in the state file.
fn pending(files: &RunFiles) -> Result<Vec<Pending>> {
    let waiting = Conversation::stored(files)?.calls.into_iter().filter(|call| call.result.is_none());
    let pending = |call: Call| Pending { id: call.asked.id, name: call.asked.name, started: call.started };
    Ok(waiting.map(pending).collect())
}
