//! The loop: ask the model, run the tools that it calls, and return the results, until the model calls no tool or a
//! limit is reached.

mod dispatch;
mod pause;
pub(crate) mod print;

use std::time::Instant;

use cp_common::output::Format;
use cp_common::program::approval;
use cp_common::wire::record::Kind;
use cp_common::wire::{Approval, Message, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result, signals};
use serde_json::{Value, json};

use self::print::{Event, print};
use crate::parts::Parts;
use crate::state::conversation::with_unique_ids;
use crate::state::run::Run;
use crate::state::step::Step;
use crate::state::tally::Total;
use crate::tools::arguments::Arguments;

/// The engine of a run: the run, its coprocesses, and the compiled schemas of its tools.
pub(crate) struct Engine {
    /// Dropped before the run, because the run's log delays the end of this process after a signal.
    parts: Parts,
    run: Run,
    arguments: Arguments,
}

impl Engine {
    /// An engine for a run.
    pub(crate) fn new(run: Run, parts: Parts) -> Self {
        Self { run, parts, arguments: Arguments::default() }
    }

    /// Drives the run until it ends, or until an error stops it. During that time all effects are recorded in the
    /// ledger of the run. The usage is added to `total`.
    pub(crate) fn drive(mut self, total: &mut Total, context: &mut Context) -> Result<()> {
        let (ledger, run) = (self.run.ledger().to_owned(), self.run.plan.run.clone());
        let outside = (context.options.ledger.replace(ledger), context.options.run.replace(run));
        // The run continues if the reader of the output exits.
        context.out.outlive_reader();
        let outcome = match self.run_loop(context) {
            Ok(answer) => self.complete(&answer, context),
            Err(error) => Err(self.stopped(error, context)),
        };
        total.add(&self.run.plan.run, &self.run.conversation.tally);
        (context.options.ledger, context.options.run) = outside;
        outcome
    }

    fn complete(&mut self, answer: &Message, context: &mut Context) -> Result<()> {
        // The coprocesses write their last entries before the end of the run.
        self.parts.rest(true, context);
        let record = self.run.plan.record.clone();
        self.run.end("completed", record.as_deref())?;
        context.name_page(&self.run.plan.run);
        if context.out.format() == Format::Json { Ok(()) } else { context.out.record(Kind::Message, answer) }
    }

    /// Stops the coprocesses and records the stop. The error has the command that resumes the run.
    fn stopped(&mut self, error: Error, context: &mut Context) -> Error {
        let mut error = self.run.resumable(error).with_row(self.run.plan.prompt.row.as_deref());
        let partial = error.details().get("partial").and_then(Value::as_str).map(str::to_owned);
        if context.out.format() != Format::Json {
            if let Some(approval) = Approval::of(&error) {
                context.out.explain(&approval::description(&approval));
            }
            if let Some(text) = partial.filter(|_| error.code() == Code::Partial)
                && let Err(failed) = context.out.piece(&text).and_then(|()| context.out.raw(b"\n"))
            {
                error = failed;
            }
        }
        if is_idle_stop(&error) {
            let at_work = error.details().get("budget").is_some_and(|budget| budget == "time");
            self.parts.rest(!at_work, context);
        } else if !self.run.conversation.calls.is_empty() {
            self.parts.model.part.stop();
        }
        match self.run.pause(&error) {
            Ok(receipt) => error.with("receipt", json!(receipt)),
            Err(unwritten) => {
                context.warn(&format!("the stop could not be recorded: {unwritten}"));
                error
            }
        }
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
        Event::iteration(&self.run.plan.run, self.run.conversation.tally.iterations + 1).show(context)?;
        // The steps must be on the disk before the model's next ledger entry.
        self.run.sync()?;
        let left = self.run.time_left()?;
        let asked = self.parts.model.ask(&mut self.run.conversation, left, context);
        if let Err(error) = &asked
            && let Some(usage) = error.details().remove("usage")
            && let Ok(usage) = serde_json::from_value(usage)
        {
            self.run.record(Step::Billed(usage))?;
        }
        let Some(message) = asked? else { return Err(self.run.out_of_time()) };
        let mut message = with_unique_ids(message);
        // The content of the message keeps the calls as the model wrote them.
        for call in &mut message.tool_calls {
            self.arguments.normalize(call, &self.run.plan.tools);
        }
        message.input = self.run.conversation.prompt.input().to_vec();
        message.mark();
        let deltas = std::mem::take(&mut self.parts.model.deltas);
        if self.run.plan.record.is_some() && !deltas.is_empty() {
            self.run.record(Step::Deltas(deltas))?;
        }
        self.run.record(Step::Message(Box::new(message)))?;
        self.show(context)
    }

    /// Prints the stored records that were not printed yet.
    fn show(&mut self, context: &mut Context) -> Result<()> {
        let unshown = std::mem::take(&mut self.run.conversation.unshown);
        if unshown.is_empty() {
            return Ok(());
        }
        unshown.iter().try_for_each(|step| print(step, context))?;
        context.out.flush()?;
        self.run.record(Step::Shown)
    }
}

/// True if a run stopped without active coprocesses, except for cp-exec after a deadline.
fn is_idle_stop(error: &Error) -> bool {
    matches!(error.code(), Code::HumanRequired | Code::BudgetExhausted)
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
