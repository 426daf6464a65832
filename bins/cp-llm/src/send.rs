//! Texts and prompts in, messages out: the verb that is meant when none is named.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cp_common::filter::{self, Body, Filter, Source};
use cp_common::output::{Format, Place};
use cp_common::record::Kind;
use cp_common::wire::{Delta, Message};
use cp_common::{Code, Context, Result, request, signals};

use crate::ahead::{Ahead, Answered};
use crate::backend::Backend;
use crate::budget::Budget;
use crate::call::{Listener, Work};
use crate::dry_run::DryRun;
use crate::options::Args;
use crate::work::Asker;

/// The time between two lines of progress.
const BETWEEN: Duration = Duration::from_secs(2);

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let source = Source::from_operands(&args.text)?;
    let asker = Arc::new(args.asker(source != Source::Input, context)?);
    let request_id = args.request_id.clone();
    let mut send =
        Send { asker, ahead: None, dry_run: args.dry_run, request_id, resumed: 0, taken: 0, told: Instant::now() };
    let reads_ahead = args.jobs > 1 || args.resume.is_some();
    if reads_ahead && source == Source::Input && !args.dry_run {
        send.ahead = Ahead::start(&send.asker, args.jobs.into(), args.unordered, args.stream_options.kind())?;
    }
    let outcome = filter::run(&mut send, source, args.stream_options, context);
    let settled = send.asker.engine.budget.as_ref().map_or(Ok(()), Budget::settle);
    outcome.and(settled)
}

struct Send {
    asker: Arc<Asker>,
    ahead: Option<Ahead>,
    dry_run: bool,
    request_id: Option<String>,
    /// How many items an earlier run had done.
    resumed: u64,
    /// How many answers were taken that were asked for ahead, and when that was last said.
    taken: u64,
    told: Instant,
}

impl Send {
    /// Prints the messages that came before their turn, when their turn will not come.
    fn rescue(&self, patience: bool, context: &mut Context) -> Result<()> {
        for answered in self.ahead.iter().flat_map(|ahead| ahead.close(patience)) {
            if let Ok(Some(message)) = &answered.outcome {
                context.out.set_place(Place { index: Some(answered.index), line: None });
                context.out.record(Kind::Message, message)?;
                context.out.item_succeeded();
            }
        }
        Ok(())
    }

    /// Prints a message. One that was paid for is in the reader's hands before the next failure can take it.
    fn print(&self, message: &Message, context: &mut Context) -> Result<()> {
        context.out.record(Kind::Message, message)?;
        match self.asker.engine.backend {
            Backend::Stub(_) => Ok(()),
            _ => context.out.flush(),
        }
    }

    /// Says on a terminal how far a batch has come, now and then.
    fn tell(&mut self, context: &Context) {
        self.taken += 1;
        if self.told.elapsed() >= BETWEEN {
            self.told = Instant::now();
            context.progress(&format!("{} done", self.taken));
        }
    }

    /// The request id of an item: the one that was given, and with its place for those after the first.
    fn id_of(&self, work: &Work) -> Option<String> {
        let id = self.request_id.as_ref()?;
        Some(if work.place == 0 { id.clone() } else { format!("{id}#{}", work.place) })
    }

    /// The answer that was asked for ahead.
    fn answered_ahead(&self, body: &Body<'_>, context: &mut Context) -> Result<Option<Answered>> {
        let data = match body {
            Body::Text(_) => None,
            Body::Row(data) => Some(*data),
            Body::Record(record) => record.data,
        };
        let (Some(ahead), Some(data)) = (&self.ahead, data) else { return Ok(None) };
        ahead.take(data.get(), || context.out.flush())
    }
}

impl Filter for Send {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        if let Some(answered) = self.answered_ahead(&body, context)? {
            self.tell(context);
            answered.warnings.iter().for_each(|warning| context.warn(warning));
            context.out.set_place(Place { index: Some(answered.index), line: None });
            match answered.outcome {
                Ok(Some(message)) => return self.print(&message, context),
                Ok(None) => self.resumed += 1,
                Err(error) => {
                    if error.is_fatal() {
                        // A budget that is gone has paid for what is under way; a refused key has not.
                        self.rescue(error.code() == Code::BudgetExhausted, context)?;
                    }
                    return Err(error);
                }
            }
            return Ok(());
        }
        let mut work = self.asker.work(&body)?;
        if self.dry_run {
            let request = DryRun::of(&self.asker.engine, &mut work)?;
            return context.out.record(Kind::Item, &request);
        }
        let mut spoke = false;
        let id = self.id_of(&work);
        let arguments = (&work.models, id.is_some().then(|| self.asker.engine.body(&work.ask)).transpose()?);
        let arguments = serde_json::json!(arguments);
        let message = request::once(id.as_deref(), &arguments, context, |context| {
            let mut listener = Screen { context, spoke: false };
            let outcome = self.asker.engine.message(&mut work, &mut listener);
            spoke = listener.spoke;
            if spoke && context.out.format() != Format::Json {
                context.out.raw(b"\n")?;
            }
            outcome
        })?;
        // Words that were shown as they came are not shown again.
        if spoke && context.out.format() != Format::Json { Ok(()) } else { self.print(&message, context) }
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        if signals::interrupted() {
            self.rescue(false, context)?;
        }
        if self.asker.done.is_some() {
            context.out.extra("resumed", self.resumed);
        }
        Ok(())
    }
}

/// Shows what happens while an answer is made.
struct Screen<'a> {
    context: &'a mut Context,
    spoke: bool,
}

impl Listener for Screen<'_> {
    fn words(&mut self, text: &str) -> Result<()> {
        self.spoke = true;
        if self.context.out.format() == Format::Json {
            self.context.out.streaming()?;
            self.context.out.record(Kind::Delta, &Delta::new(text))?;
        } else {
            self.context.out.raw(text.as_bytes())?;
        }
        self.context.out.flush()
    }

    fn warn(&mut self, message: &str) {
        self.context.warn(message);
    }
}
