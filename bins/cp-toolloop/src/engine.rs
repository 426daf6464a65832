//! The loop: ask the model, carry out what it calls, tell it what came of that, until it calls nothing or a limit is reached.

use cp_common::output::Format;
use cp_common::record::Kind;
use cp_common::wire::Message;
use cp_common::{Code, Context, Error, Result, signals};

use crate::arguments::Arguments;
use crate::book::Book;
use crate::conversation::{Conversation, with_calls};
use crate::event::Event;
use crate::executor::Executor;
use crate::journal::{Journal, Step};
use crate::model::Model;
use crate::plan::Plan;
use crate::repeat::Repeats;

/// A run that is under way.
pub(crate) struct Engine {
    pub(crate) plan: Plan,
    pub(crate) conversation: Conversation,
    pub(crate) journal: Journal,
    pub(crate) book: Book,
    pub(crate) executor: Executor,
    pub(crate) arguments: Arguments,
    pub(crate) repeats: Repeats,
    pub(crate) model: Model,
}

impl Engine {
    /// An engine for a run that stands where `conversation` says.
    pub(crate) fn new(plan: Plan, conversation: Conversation, journal: Journal, book: Book) -> Self {
        let executor = Executor::new(plan.directories.clone());
        let model = Model::new(plan.model.clone());
        Self {
            plan,
            conversation,
            journal,
            book,
            executor,
            arguments: Arguments::default(),
            repeats: Repeats::default(),
            model,
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
                self.book.end("completed", &tally)?;
                self.journal.remove()?;
                self.model.finish()?;
                self.executor.finish()?;
                if context.out.format() != Format::Json {
                    context.out.record(Kind::Message, &last_words)?;
                }
                tally.close(&self.plan.run, &mut context.out);
                Ok(())
            }
            Err(error) => {
                let error = self.resumable(error, context);
                if let Err(unwritten) = self.book.paused(&error, &tally) {
                    context.warn(&format!("the stop is not on the ledger: {unwritten}"));
                }
                tally.close(&self.plan.run, &mut context.out);
                Err(error)
            }
        }
    }

    fn go_on(&mut self, context: &mut Context) -> Result<Message> {
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
        if tally.iterations < limits.max_iterations {
            return Ok(());
        }
        let message = format!("the model was asked {} times and is not done", tally.iterations);
        Err(Error::new(Code::BudgetExhausted, message)
            .with("budget", "iterations")
            .with("action", "raise_budget")
            .with("resume", self.resume_line(&format!(" --max-iterations {}", limits.max_iterations * 2)))
            .hint("details.resume goes on from here with a higher limit"))
    }

    fn ask(&mut self, context: &mut Context) -> Result<()> {
        let number = self.conversation.tally.iterations + 1;
        self.book.iteration(number)?;
        Event::iteration(&self.plan.run, number).show(context)?;
        let mut message = with_calls(self.model.ask(&self.conversation.prompt, context)?);
        message.input = self.conversation.news();
        message.untrusted = vec!["/content".to_owned(), "/tool_calls".to_owned(), "/input".to_owned()];
        self.step(Step::Message(Box::new(message.clone())))?;
        self.book.message(number, &message)?;
        if context.out.format() == Format::Json {
            context.out.record(Kind::Message, &message)?;
            context.out.flush()?;
        }
        Ok(())
    }

    /// Writes a step down, then goes it.
    pub(crate) fn step(&mut self, step: Step) -> Result<()> {
        self.journal.append(&step)?;
        self.conversation.take(step)
    }

    /// The command that goes on with this run.
    pub(crate) fn resume_line(&self, more: &str) -> String {
        format!("cp-toolloop resume {}{more}", self.plan.run)
    }

    /// Says how to go on, whatever the reason for the stop.
    fn resumable(&self, error: Error, context: &Context) -> Error {
        let home = context.home.root().display();
        let error = error.with("run_id", self.plan.run.as_str());
        match error.details().get("resume").and_then(|line| line.as_str()) {
            Some(line) => {
                let line = line.replacen("cp-toolloop ", &format!("cp-toolloop --home {home} "), 1);
                error.with("resume", line)
            }
            None => error.with("resume", format!("cp-toolloop --home {home} resume {}", self.plan.run)),
        }
    }
}
