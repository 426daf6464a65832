//! What a run prints: its events, messages, calls and results; and the same from the steps of a recording.

use std::path::Path;

use cp_common::output::{Format, fitting};
use cp_common::wire::record::Kind;
use cp_common::wire::{LedgerName, Reply, ToolCall, quoted};
use cp_common::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::parts::part;
use crate::state::conversation::Conversation;
use crate::state::plan::Plan;
use crate::state::step::Step;

/// Prints a step that is a record.
pub(super) fn print(step: &Step, context: &mut Context) -> Result<()> {
    let is_json = context.out.format() == Format::Json;
    match step {
        Step::Message(message) if is_json => context.out.record(Kind::Message, &**message),
        Step::Finished(_, result) if is_json => context.out.record(Kind::ToolResult, &**result),
        _ => Ok(()),
    }
}

/// Returns a call or a command in one line: the line or the words of a command, or the arguments.
pub(crate) fn command(input: &Value) -> String {
    let line = ["line", "command"].iter().find_map(|name| input[*name].as_str());
    match (line, input["argv"].as_array()) {
        (Some(line), _) => line.to_owned(),
        (None, Some(words)) => words.iter().filter_map(Value::as_str).map(quoted).collect::<Vec<_>>().join(" "),
        (None, None) => input.to_string(),
    }
}

/// Tells a person at a terminal which call succeeded or failed.
pub(super) fn report_end(call: &ToolCall, is_error: bool, context: &Context) {
    let mark = if is_error { "✗" } else { "✓" };
    let input = serde_json::from_str(call.input.get()).unwrap_or_default();
    context.progress(&fitting(&format!("  {mark} {}: {}", call.name, command(&input))));
}

pub(super) fn print_call(call: &ToolCall, context: &mut Context) -> Result<()> {
    if context.out.format() != Format::Json {
        return Ok(());
    }
    let mut shown = call.clone();
    shown.untrusted = vec!["/name".to_owned(), "/input".to_owned()];
    context.out.record(Kind::ToolCall, &shown)?;
    context.out.flush()
}

/// Prints what the run of these steps has printed from the step `from` on, without a model, tools, processes or a
/// network. Returns its state.
pub(crate) fn play(mut steps: Vec<Step>, from: usize, context: &mut Context) -> Result<Conversation> {
    let rest = steps.split_off(from.max(1).min(steps.len()));
    let (plan, mut played) = Conversation::of_steps(steps)?;
    let mut turn = 0;
    for step in rest {
        let next = played.tally.iterations + 1;
        if matches!(step, Step::Deltas(_) | Step::Message(_)) && turn < next {
            turn = next;
            Event::iteration(&plan.run, turn).show(context)?;
        }
        match &step {
            Step::Deltas(deltas) => deltas.iter().try_for_each(|delta| part::show(delta, context))?,
            Step::Finished(at, _) => {
                played.calls.get(*at).map_or(Ok(()), |call| print_call(&call.asked, context))?;
            }
            _ => {}
        }
        played.take(step)?;
        std::mem::take(&mut played.unshown).iter().try_for_each(|step| print(step, context))?;
    }
    match &played.answer {
        Some(answer) if context.out.format() != Format::Json => context.out.record(Kind::Message, answer)?,
        _ => {}
    }
    Ok(played)
}

/// A point in a run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Event {
    /// `run_start`, `run_resumed` or `iteration`.
    #[serde(rename = "event")]
    what: &'static str,
    /// The run.
    run_id: String,
    /// Which turn of the model begins, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration: Option<u64>,
    #[serde(flatten)]
    ledger: Option<LedgerName>,
    /// How many of the records that follow may have been printed before the run stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<usize>,
    /// A hash of what is asked, and of whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
}

impl Event {
    /// The start of a run.
    pub(crate) fn start(plan: &Plan, ledger: &Path) -> Self {
        Self {
            what: "run_start",
            run_id: plan.run.clone(),
            ledger: Some(ledger.into()),
            request: Some(plan.request()),
            tools: Some(plan.tools.iter().map(|tool| tool.name.clone()).collect()),
            ..Self::default()
        }
    }

    /// The resume of a run; `replayed` of the following records may have been printed before.
    pub(crate) fn resumed(plan: &Plan, ledger: &Path, replayed: usize) -> Self {
        Self { what: "run_resumed", replayed: Some(replayed), ..Self::start(plan, ledger) }
    }

    /// A turn of the model begins.
    pub(crate) fn iteration(run: &str, number: u64) -> Self {
        Self { what: "iteration", run_id: run.to_owned(), iteration: Some(number), ..Self::default() }
    }

    /// Prints the record and flushes the output.
    pub(crate) fn show(&self, context: &mut Context) -> Result<()> {
        context.progress(&self.text());
        if context.out.format() != Format::Json {
            return Ok(());
        }
        context.out.record(Kind::Item, self)?;
        context.out.flush()
    }
}

impl Reply for Event {
    fn text(&self) -> String {
        match self.iteration {
            Some(number) => format!("· asking the model, turn {number}"),
            None => format!("· {} {}", self.what.replace('_', " "), self.run_id),
        }
    }
}
