//! The loop: ask the model, carry out what it calls, tell it what came of that, until it calls nothing or a limit is reached.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cp_common::output::Format;
use cp_common::wire::record::Kind;
use cp_common::wire::{Message, Receipt, ToolCall};
use cp_common::{Code, Context, Error, Result, signals};

use crate::agent::Share;
use crate::approval::Approver;
use crate::arguments::Arguments;
use crate::book::Book;
use crate::conversation::{Conversation, Unshown, with_calls};
use crate::event::Event;
use crate::executor::Executor;
use crate::journal::{Decision, Journal, Step};
use crate::mcp::{Ground, Servers};
use crate::model::{self, Model};
use crate::plan::Plan;
use crate::repeat::Repeats;
use crate::replay::Replay;

/// A run that is under way.
pub(crate) struct Engine {
    pub(crate) plan: Plan,
    pub(crate) conversation: Conversation,
    pub(crate) executor: Executor,
    pub(crate) arguments: Arguments,
    pub(crate) repeats: Repeats,
    pub(crate) approver: Approver,
    /// The MCP servers.
    pub(crate) servers: Servers,
    /// What starting them needs, read when first needed.
    pub(crate) ground: Option<Ground>,
    /// When the time is up.
    pub(crate) deadline: Option<Instant>,
    /// What the agents under way were given of the budget, by their calls.
    pub(crate) shares: BTreeMap<usize, Share>,
    /// What a person said about calls in the runs of agents.
    pub(crate) forwarded: Vec<(String, Decision)>,
    /// What happened before, in place of a model and of tools.
    pub(crate) replay: Option<Replay>,
    model: Model,
    /// Where steps are written down; a replay writes none.
    trace: Option<Trace>,
    /// Where the whole run is kept at its end.
    record: Option<PathBuf>,
}

/// Where a run is written down.
pub(crate) struct Trace {
    /// The exact state.
    pub(crate) journal: Journal,
    /// The ledger.
    pub(crate) book: Book,
}

impl Engine {
    /// An engine for a run that stands where `conversation` says.
    pub(crate) fn new(plan: Plan, conversation: Conversation, trace: Option<Trace>, approver: Approver) -> Self {
        Self {
            executor: Executor::new(plan.directories.clone()),
            model: Model::new(plan.model.clone()),
            arguments: Arguments::default(),
            repeats: Repeats::default(),
            servers: Servers::default(),
            ground: None,
            deadline: conversation.limits.deadline.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds)),
            shares: BTreeMap::new(),
            forwarded: Vec::new(),
            replay: None,
            record: plan.record.clone(),
            plan,
            conversation,
            trace,
            approver,
        }
    }

    /// Runs to the end, or to what stops it. Either way everything that happened is on record.
    pub(crate) fn drive(mut self, context: &mut Context) -> Result<()> {
        // The reader may leave; what the run does must not depend on that.
        context.out.outlive_reader();
        let outcome = self.go_on(context);
        let tally = self.conversation.tally;
        match outcome {
            Ok(last_words) => {
                // The parts write their own last entries, and the end of the run is the last of all.
                self.let_parts_leave(context);
                self.note(|book| book.end("completed", &tally))?;
                if let Some(trace) = self.trace.take() {
                    trace.journal.close(self.record.as_deref())?;
                }
                if context.out.format() != Format::Json {
                    context.out.record(Kind::Message, &last_words)?;
                }
                tally.close(&self.plan.run, &mut context.out);
                Ok(())
            }
            Err(error) => {
                let error = self.resumable(error, context);
                if is_at_rest(&error) {
                    self.let_parts_leave(context);
                }
                if let Err(unwritten) = self.note(|book| book.paused(&error, &tally)) {
                    context.warn(&format!("the stop is not on the ledger: {unwritten}"));
                }
                tally.close(&self.plan.run, &mut context.out);
                Err(error)
            }
        }
    }

    fn let_parts_leave(&mut self, context: &Context) {
        for left in [self.model.finish(), self.executor.finish()] {
            if let Err(error) = left {
                context.warn(error.message());
            }
        }
    }

    fn go_on(&mut self, context: &mut Context) -> Result<Message> {
        self.show(context)?;
        loop {
            signals::check()?;
            if !self.conversation.calls.is_empty() {
                self.dispatch(context)?;
            } else if let Some(last_words) = self.conversation.last_words.take() {
                return Ok(last_words);
            } else {
                self.check_limits()?;
                self.ask(context)?;
            }
        }
    }

    fn check_limits(&self) -> Result<()> {
        let (tally, limits) = (&self.conversation.tally, &self.conversation.limits);
        let (doubled, as_dollars) = (|limit: u64| limit.saturating_mul(2), |usd: f64| format!("{:.4}", usd * 2.0));
        if tally.all_iterations() >= limits.max_iterations {
            let message = format!("the model was asked {} times and is not done", tally.all_iterations());
            return Err(self.exhausted(
                "iterations",
                message,
                "--max-iterations",
                &doubled(limits.max_iterations).to_string(),
            ));
        }
        if let Some(limit) = limits.tokens.filter(|limit| tally.tokens() >= *limit) {
            let message = format!("{} tokens were used, of {limit}", tally.tokens());
            return Err(self.exhausted(
                "tokens",
                message,
                "--budget-tokens",
                &doubled(limit.max(tally.tokens())).to_string(),
            ));
        }
        if let (Some(limit), true) = (limits.usd, tally.iterations > 0) {
            let Some(spent) = tally.usage.cost_usd else {
                return Err(Error::config("an answer had no price, so the budget in dollars cannot be kept")
                    .hint("add the model to config/prices.toml, or use --budget-tokens"));
            };
            if spent >= limit {
                let message = format!("{spent:.4} dollars were spent, of {limit:.4}");
                return Err(self.exhausted("usd", message, "--budget-usd", &as_dollars(limit.max(spent))));
            }
        }
        self.time_left().map(|_| ())
    }

    /// How long the run may still take; `None`: as long as it likes.
    pub(crate) fn time_left(&self) -> Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(self.out_of_time()),
        }
    }

    /// The error of a run whose time is up.
    pub(crate) fn out_of_time(&self) -> Error {
        let seconds = self.conversation.limits.deadline.unwrap_or_default();
        self.exhausted("time", format!("{seconds} seconds are over"), "--deadline", &(seconds * 2.0).to_string())
    }

    fn exhausted(&self, budget: &str, message: String, option: &str, next: &str) -> Error {
        Error::new(Code::BudgetExhausted, message)
            .with("budget", budget)
            .with("action", "raise_budget")
            .with("resume", self.resume_line(&format!(" {option} {next}")))
            .hint("details.resume goes on from here with a higher limit")
    }

    fn ask(&mut self, context: &mut Context) -> Result<()> {
        let number = self.conversation.tally.iterations + 1;
        self.note(|book| book.iteration(number))?;
        Event::iteration(&self.plan.run, number).show(context)?;
        let answer = if let Some(replay) = &mut self.replay {
            let (deltas, message) = replay.message()?;
            deltas.iter().try_for_each(|delta| model::show(delta, context))?;
            Some(message)
        } else {
            let left = self.time_left()?;
            self.model.ask(&self.conversation.prompt, &self.conversation.returned, left, context)?
        };
        let Some(message) = answer else { return Err(self.out_of_time()) };
        let mut message = with_calls(message);
        message.input = self.conversation.news();
        message.untrusted = vec!["/content".to_owned(), "/tool_calls".to_owned(), "/input".to_owned()];
        self.note(|book| book.message(number, &message))?;
        let deltas = self.model.take_deltas();
        if self.record.is_some() && !deltas.is_empty() {
            self.step(Step::Deltas(deltas))?;
        }
        self.step(Step::Message(Box::new(message)))?;
        self.show(context)
    }

    /// Prints what was written down and not printed, and writes down that it was.
    pub(crate) fn show(&mut self, context: &mut Context) -> Result<()> {
        let unshown = std::mem::take(&mut self.conversation.unshown);
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
        self.step(Step::Shown)
    }

    /// Writes a step down, then goes it.
    pub(crate) fn step(&mut self, step: Step) -> Result<()> {
        if let Some(trace) = &mut self.trace {
            trace.journal.append(&step)?;
        }
        self.conversation.take(step)
    }

    /// Starts a call in a slot.
    pub(crate) fn start_call(&mut self, slot: usize, call: &ToolCall, context: &Context) -> Result<()> {
        let executor = &mut self.executor;
        match &self.trace {
            Some(trace) => trace.journal.shared(|| executor.start(slot, call, context)),
            None => executor.start(slot, call, context),
        }
    }

    /// Writes an entry into the ledger. Where it stands; a replay writes none.
    pub(crate) fn note(&mut self, what: impl FnOnce(&mut Book) -> Result<Receipt>) -> Result<Option<Receipt>> {
        self.trace.as_mut().map(|trace| what(&mut trace.book)).transpose()
    }

    /// Waits until the disk has everything: before what cannot be undone.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(trace) = &mut self.trace else { return Ok(()) };
        trace.book.sync()?;
        trace.journal.sync()
    }

    /// Keeps the whole of a text that is cut.
    pub(crate) fn keep(&self, text: &str) -> Result<Option<String>> {
        self.trace.as_ref().map(|trace| trace.book.keep(text).map(|hash| hash.to_string())).transpose()
    }

    /// The command that goes on with this run.
    pub(crate) fn resume_line(&self, more: &str) -> String {
        format!("cp-toolloop resume {}{more}", self.plan.run)
    }

    /// Says how to go on, whatever the reason for the stop.
    fn resumable(&self, error: Error, context: &Context) -> Error {
        let error = error.with("run_id", self.plan.run.as_str());
        if self.trace.is_none() {
            return error;
        }
        let home = quoted(&context.home.root().display().to_string());
        let details = error.details();
        let mut error = error;
        for name in ["resume", "otherwise"] {
            let line = match details.get(name).and_then(|line| line.as_str()) {
                Some(line) if line.starts_with("cp-toolloop ") => line.to_owned(),
                _ if name == "resume" => self.resume_line(""),
                _ => continue,
            };
            error = error.with(name, line.replacen("cp-toolloop ", &format!("cp-toolloop --home {home} "), 1));
        }
        error
    }
}

/// Whether a run stopped between two steps, with nothing under way in its parts.
fn is_at_rest(error: &Error) -> bool {
    match error.code() {
        Code::HumanRequired | Code::CommandFailed => true,
        Code::BudgetExhausted => error.details().get("budget").is_none_or(|budget| budget != "time"),
        _ => false,
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if word.bytes().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
