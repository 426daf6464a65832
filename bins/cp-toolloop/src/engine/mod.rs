//! The loop: ask the model, carry out what it calls, give it the results, until it calls nothing or a limit is reached.

mod context;
mod delegate;
mod dispatch;
pub(crate) mod event;
mod pause;
mod pending;
pub(crate) mod repeats;
mod served;

use std::collections::BTreeMap;

use cp_common::output::Format;
use cp_common::program::approval;
use cp_common::wire::record::Kind;
use cp_common::wire::{Approval, Message};
use cp_common::{Code, Context, Error, Result, signals};
use serde_json::json;

use self::event::Event;
use self::repeats::Repeats;
use crate::parts::agent::Share;
use crate::parts::hooks::Approver;
use crate::parts::replay::Replay;
use crate::parts::{Parts, model};
use crate::state::conversation::{Unshown, told_apart};
use crate::state::run::Run;
use crate::state::step::{Decision, Step};
use crate::state::tally::Total;
use crate::tools::arguments::Arguments;

/// What drives a run: the run itself, the programs that work for it, and what is remembered from call to call.
pub(crate) struct Engine {
    run: Run,
    parts: Parts,
    arguments: Arguments,
    repeats: Repeats,
    /// What the agents under way were given of the budget, by their calls.
    shares: BTreeMap<usize, Share>,
    /// Decisions about calls in the runs of agents.
    forwarded: Vec<(String, Decision)>,
    /// What happened before, in place of the parts.
    replay: Option<Replay>,
}

impl Engine {
    /// An engine for a run.
    pub(crate) fn new(run: Run, parts: Parts) -> Self {
        Self {
            run,
            parts,
            arguments: Arguments::default(),
            repeats: Repeats::default(),
            shares: BTreeMap::new(),
            forwarded: Vec::new(),
            replay: None,
        }
    }

    /// An engine for a run that goes on: with its calls so far, and with decisions about calls of its agents.
    pub(crate) fn resumed(run: Run, parts: Parts, repeats: Repeats, forwarded: Vec<(String, Decision)>) -> Self {
        Self { repeats, forwarded, ..Self::new(run, parts) }
    }

    /// An engine that plays a recording.
    pub(crate) fn replaying(run: Run, replay: Replay) -> Result<Self> {
        let parts = Parts::new(&run.plan, &run.plan.limits, Approver::default(), None)?;
        Ok(Self { replay: Some(replay), ..Self::new(run, parts) })
    }

    /// Runs to the end, or to what stops it. Either way everything that happened is on record. Meanwhile the run's own ledger is the one
    /// that every effect goes to. What it used is added to `total`.
    pub(crate) fn drive(mut self, total: &mut Total, context: &mut Context) -> Result<()> {
        let Some(ledger) = self.run.ledger().map(ToOwned::to_owned) else { return self.drive_here(total, context) };
        let run = self.run.plan.run.clone();
        let outside = (context.options.ledger.replace(ledger), context.options.run.replace(run));
        let outcome = self.drive_here(total, context);
        (context.options.ledger, context.options.run) = outside;
        outcome
    }

    fn drive_here(&mut self, total: &mut Total, context: &mut Context) -> Result<()> {
        // The reader may leave; what the run does must not depend on that.
        context.out.outlive_reader();
        let outcome = self.go_on(context);
        let tally = self.run.conversation.tally;
        let outcome = match outcome {
            Ok(answer) => {
                // The parts write their own last entries, and the end of the run is the last of all.
                self.parts.rest(true, context);
                self.run.complete()?;
                context.name_page("--run", &self.run.plan.run);
                if context.out.format() != Format::Json {
                    context.out.record(Kind::Message, &answer)?;
                }
                Ok(())
            }
            Err(error) => {
                let row = self.run.plan.prompt.row.as_deref();
                let mut error = self.run.resumable(error, context.home.root()).with_row(row);
                if context.out.format() != Format::Json
                    && let Some(approval) = Approval::of(&error)
                {
                    context.explain(&approval::description(&approval));
                }
                if is_at_rest(&error) {
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

    fn go_on(&mut self, context: &mut Context) -> Result<Message> {
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
        let mut played = self.replay.as_mut().map(Replay::message).transpose()?;
        match &mut played {
            Some(played) => {
                std::mem::take(&mut played.before).into_iter().try_for_each(|step| self.compact(step, context))?;
            }
            None => self.fit(context)?,
        }
        let number = self.run.conversation.tally.iterations + 1;
        self.run.note(|journal| journal.iteration(number))?;
        Event::iteration(&self.run.plan.run, number).show(context)?;
        let answer = if let Some(played) = played {
            played.deltas.iter().try_for_each(|delta| model::show(delta, context))?;
            Some(played.message)
        } else {
            // What the ledger says with the part's next entry, the state must say too.
            self.run.sync()?;
            let left = self.run.time_left()?;
            let conversation = &self.run.conversation;
            self.parts.model.ask(&conversation.prompt, &conversation.returned, left, context)?
        };
        let Some(message) = answer else { return Err(self.run.out_of_time()) };
        let (mut message, renamed) = told_apart(message);
        message.input = self.run.conversation.news();
        message.mark();
        self.run.note(|journal| journal.message(number, &message, &renamed))?;
        let deltas = self.parts.model.take_deltas();
        if self.run.plan.record.is_some() && !deltas.is_empty() {
            self.run.step(Step::Deltas(deltas))?;
        }
        self.run.step(Step::Message(Box::new(message)))?;
        self.show(context)
    }

    /// Prints what was written down and not printed, and writes down that it was.
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

/// Whether a run stopped of its own accord, with nothing under way in its parts, except in cp-exec where the time was up.
fn is_at_rest(error: &Error) -> bool {
    matches!(error.code(), Code::HumanRequired | Code::CommandFailed | Code::BudgetExhausted)
}
