//! The loop: ask the model, run the tools that it calls, and return the results, until the model calls no tool or a
//! limit is reached.

mod dispatch;
mod pause;
pub(crate) mod repeats;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use cp_common::output::Format;
use cp_common::program::approval;
use cp_common::wire::record::Kind;
use cp_common::wire::{Approval, Message, Reply, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result, signals};
use serde::Serialize;
use serde_json::{Value, json};

use self::repeats::Repeats;
use crate::parts::approver::Approver;
use crate::parts::replay::Replay;
use crate::parts::{Parts, model};
use crate::state::conversation::{Unshown, with_unique_ids};
use crate::state::plan::Plan;
use crate::state::run::Run;
use crate::state::step::Step;
use crate::state::tally::Total;
use crate::tools::arguments::Arguments;

/// The engine of a run: the run, its coprocesses, and the state between calls.
pub(crate) struct Engine {
    /// Dropped before the run, because the run's log delays the end of this process after a signal.
    parts: Parts,
    run: Run,
    arguments: Arguments,
    repeats: Repeats,
    /// A recording that replaces the coprocesses.
    replay: Option<Replay>,
}

impl Engine {
    /// An engine for a run.
    pub(crate) fn new(run: Run, parts: Parts) -> Self {
        Self { run, parts, arguments: Arguments::default(), repeats: Repeats::default(), replay: None }
    }

    /// An engine for a resumed run, with its earlier calls.
    pub(crate) fn resumed(run: Run, parts: Parts, repeats: Repeats) -> Self {
        Self { repeats, ..Self::new(run, parts) }
    }

    /// An engine that replays a recording.
    pub(crate) fn replaying(run: Run, replay: Replay) -> Self {
        let parts = Parts::new(&run.plan, &run.plan.limits, Approver::default(), None);
        Self { replay: Some(replay), ..Self::new(run, parts) }
    }

    /// Drives the only run of a command.
    pub(crate) fn drive_alone(self, context: &mut Context) -> Result<()> {
        let mut total = Total::default();
        let outcome = self.drive(&mut total, context);
        total.close(&mut context.out);
        outcome?;
        context.out.item_succeeded();
        Ok(())
    }

    /// Drives the run until it ends, or until an error stops it. During that time all effects are recorded in the
    /// ledger of the run. The usage is added to `total`.
    pub(crate) fn drive(mut self, total: &mut Total, context: &mut Context) -> Result<()> {
        let Some(ledger) = self.run.ledger().map(ToOwned::to_owned) else {
            return self.drive_in_context(total, context);
        };
        let run = self.run.plan.run.clone();
        let outside = (context.options.ledger.replace(ledger), context.options.run.replace(run));
        let outcome = self.drive_in_context(total, context);
        (context.options.ledger, context.options.run) = outside;
        outcome
    }

    fn drive_in_context(&mut self, total: &mut Total, context: &mut Context) -> Result<()> {
        // The run continues if the reader of the output exits.
        context.out.outlive_reader();
        let outcome = self.run_loop(context);
        let tally = self.run.conversation.tally;
        let outcome = match outcome {
            Ok(answer) => {
                // The coprocesses write their last entries before the end of the run.
                self.parts.rest(true, context);
                self.run.complete()?;
                context.name_page(&self.run.plan.run);
                if context.out.format() != Format::Json {
                    context.out.record(Kind::Message, &answer)?;
                }
                Ok(())
            }
            Err(error) => {
                let row = self.run.plan.prompt.row.as_deref();
                let mut error = self.run.resumable(error, &context.home).with_row(row);
                if context.out.format() != Format::Json
                    && let Some(approval) = Approval::of(&error)
                {
                    context.out.explain(&approval::description(&approval));
                }
                if let (Code::Partial, Some(text)) =
                    (error.code(), error.details().get("partial").and_then(Value::as_str))
                    && context.out.format() != Format::Json
                {
                    context.out.piece(text)?;
                    context.out.raw(b"\n")?;
                }
                if is_idle_stop(&error) {
                    let at_work = error.details().get("budget").is_some_and(|budget| budget == "time");
                    self.parts.rest(!at_work, context);
                } else if !self.run.conversation.calls.is_empty() {
                    self.parts.model.stop();
                }
                match self.run.note(|journal| journal.paused(&error, &tally)) {
                    Ok(receipt) => error = error.with("receipt", json!(receipt)),
                    Err(unwritten) => {
                        context.warn(&format!("the stop could not be written to the ledger: {unwritten}"));
                    }
                }
                if let Err(unwritten) = self.run.keep() {
                    context.warn(&format!("the run so far could not be recorded: {unwritten}"));
                }
                Err(error)
            }
        };
        total.add(&self.run.plan.run, &tally);
        outcome
    }

    fn run_loop(&mut self, context: &mut Context) -> Result<Message> {
        self.show(context)?;
        loop {
            signals::check()?;
            if !self.run.conversation.calls.is_empty() {
                self.dispatch(context)?;
            } else if let Some(answer) = self.run.conversation.answer.take() {
                return Ok(answer);
            } else {
                self.run.check_limits()?;
                self.ask(context)?;
            }
        }
    }

    fn ask(&mut self, context: &mut Context) -> Result<()> {
        let played = self.replay.as_mut().map(Replay::message).transpose()?;
        let number = self.run.conversation.tally.iterations + 1;
        self.run.note(|journal| journal.iteration(number))?;
        Event::iteration(&self.run.plan.run, number).show(context)?;
        let answer = if let Some(played) = played {
            played.deltas.iter().try_for_each(|delta| model::show(delta, context))?;
            Some(played.message)
        } else {
            // The state must be on the disk before the model's next ledger entry.
            self.run.sync()?;
            let left = self.run.time_left()?;
            let conversation = &self.run.conversation;
            let asked = self.parts.model.ask(&conversation.prompt, &conversation.returned, left, context);
            if let Err(error) = &asked
                && let Some(usage) = error.details().remove("usage")
                && let Ok(usage) = serde_json::from_value(usage)
            {
                self.run.step(Step::Billed(usage))?;
            }
            asked?
        };
        let Some(message) = answer else { return Err(self.run.out_of_time()) };
        let (mut message, renamed) = with_unique_ids(message);
        // The content of the message keeps the calls as the model wrote them.
        let mut normalized = BTreeMap::new();
        for call in &mut message.tool_calls {
            if self.arguments.normalize(call, &self.run.plan.tools) {
                normalized.insert(call.id.clone(), json!({"name": call.name, "input": call.input}));
            }
        }
        message.input = self.run.conversation.new_turns();
        message.mark();
        self.run.note(|journal| journal.message(number, &message, &renamed, &normalized))?;
        let deltas = self.parts.model.take_deltas();
        if self.run.plan.record.is_some() && !deltas.is_empty() {
            self.run.step(Step::Deltas(deltas))?;
        }
        self.run.step(Step::Message(Box::new(message)))?;
        self.show(context)
    }

    /// Prints the stored records that were not printed yet.
    fn show(&mut self, context: &mut Context) -> Result<()> {
        let unshown = std::mem::take(&mut self.run.conversation.unshown);
        if unshown.is_empty() {
            return Ok(());
        }
        if context.out.format() == Format::Json {
            for record in &unshown {
                match record {
                    Unshown::Message(message) => context.out.record(Kind::Message, &**message)?,
                    Unshown::Result(result) => context.out.record(Kind::ToolResult, &**result)?,
                }
            }
            context.out.flush()?;
        }
        self.run.step(Step::Shown)
    }
}

/// True if a run stopped without active coprocesses, except for cp-exec after a deadline.
fn is_idle_stop(error: &Error) -> bool {
    matches!(error.code(), Code::HumanRequired | Code::CommandFailed | Code::BudgetExhausted)
}

/// An active call.
struct Pending {
    /// Its index among the calls of the message.
    at: usize,
    call: ToolCall,
    began: Instant,
}

impl Pending {
    /// A failed result for the model.
    fn failed(&self, content: impl Into<String>) -> ToolResult {
        ToolResult {
            id: self.call.id.clone(),
            name: self.call.name.clone(),
            content: content.into(),
            is_error: true,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..ToolResult::default()
        }
    }
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
    /// The run's ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<String>,
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
            ledger: Some(ledger.display().to_string()),
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
