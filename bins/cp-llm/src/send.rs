//! Texts and prompts in, messages out: the verb that is meant when none is named.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cp_common::context::options::StreamOptions;
use cp_common::output::Format;
use cp_common::program::idempotency;
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::record::Kind;
use cp_common::wire::{Delta, Message};
use cp_common::{Code, Context, Error, Result, signals};

use crate::backend::Backend;
use crate::batch::{Answered, Batch, Words};
use crate::budget::Budget;
use crate::call::{Listener, Work};
use crate::dry_run::DryRun;
use crate::options::Args;
use crate::work::Asker;

/// The time between two lines of progress.
const BETWEEN: Duration = Duration::from_secs(2);
/// How long what is under way may take to put on the ledger what became of it, when nobody waits for its answer.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let source = Source::from_operands(&args.text)?;
    let asker = Arc::new(args.asker(context)?);
    let in_parallel = args.jobs > 1 && source == Source::Input && !args.dry_run;
    let batch = in_parallel.then(|| Batch::new(&asker, args.jobs.into(), args.unordered)).transpose()?;
    let mut send = Send {
        asker,
        batch,
        unordered: args.unordered,
        options: args.stream_options,
        dry_run: args.dry_run,
        request_id: args.request_id.clone(),
        taken: 0,
        told: Instant::now(),
    };
    let outcome = filter::run(&mut send, source, args.stream_options, context);
    if let Err(error) = &outcome {
        send.rescue(error, context);
    }
    let settled = send.asker.engine.budget.as_ref().map_or(Ok(()), Budget::settle);
    outcome.and(settled)
}

struct Send {
    asker: Arc<Asker>,
    batch: Option<Batch>,
    unordered: bool,
    options: StreamOptions,
    dry_run: bool,
    request_id: Option<String>,
    /// How many answers of the batch were taken, and when that was last said.
    taken: u64,
    told: Instant,
}

impl Send {
    /// Prints what is paid for when the stream ends before its turn.
    fn rescue(&mut self, end: &Error, context: &mut Context) {
        let Some(batch) = &mut self.batch else { return };
        // A budget that is gone has paid for what is under way, and so has a reader who left; a refused key has not.
        let patient = end.code() != Code::Auth && !signals::interrupted();
        let remaining = batch.remaining(if patient { Duration::MAX } else { LAST_WORDS });
        let options = StreamOptions { continue_on_error: true, ..self.options };
        // Who reads no more gets no more.
        for (answered, words) in remaining.into_iter().filter(|_| !end.is_reader_gone()) {
            let printed = show(words, context).and_then(|()| match answered.outcome {
                Err(error) if error.code() == Code::Interrupted => {
                    context.out.set_place(answered.place);
                    context.out.item_failed(error)
                }
                // Why the stream ended is said by its end, once.
                Err(error) if error.is_fatal() => Ok(()),
                _ => self.settle(answered, options, context),
            });
            if printed.is_err() {
                return;
            }
        }
    }

    /// Prints what has come. False when that was nothing.
    fn advance(&mut self, context: &mut Context) -> Result<bool> {
        let Some(batch) = &mut self.batch else { return Ok(false) };
        let (answered, words) = batch.ready();
        let came = answered.is_some() || !words.is_empty();
        show(words, context)?;
        if let Some(answered) = answered {
            self.settle(answered, self.options, context)?;
        }
        Ok(came)
    }

    /// Prints what comes next, if something is under way. False when nothing is.
    fn wait(&mut self, context: &mut Context) -> Result<bool> {
        if self.advance(context)? {
            return Ok(true);
        }
        let Some(batch) = self.batch.as_ref().filter(|batch| !batch.is_empty()) else { return Ok(false) };
        // What is certain is shown before the wait.
        context.out.flush()?;
        batch.wait()?;
        Ok(true)
    }

    /// Prints and counts an answer of the batch.
    fn settle(&mut self, answered: Answered, options: StreamOptions, context: &mut Context) -> Result<()> {
        self.taken += 1;
        if self.told.elapsed() >= BETWEEN {
            self.told = Instant::now();
            context.progress(&format!("{} done", self.taken));
        }
        filter::settle(answered.place, options, context, |context| {
            answered.warnings.iter().for_each(|warning| context.warn(warning));
            self.conclude(answered.spoke, answered.outcome, context)
        })
    }

    /// Prints a message. Words that were shown as they came are not shown again.
    fn conclude(&self, spoke: bool, outcome: Result<Message>, context: &mut Context) -> Result<()> {
        let is_told = spoke && context.out.format() != Format::Json;
        if is_told {
            context.out.raw(b"\n")?;
        }
        let message = outcome?;
        if is_told { Ok(()) } else { self.print(&message, context) }
    }

    /// Prints a message. One that was paid for is in the reader's hands before the next failure can take it.
    fn print(&self, message: &Message, context: &mut Context) -> Result<()> {
        context.out.record(Kind::Message, message)?;
        match self.asker.engine.backend {
            Backend::Stub(_) => Ok(()),
            _ => context.out.flush(),
        }
    }

    /// The request id of an item: the one that was given, and with its place for those after the first.
    fn id_of(&self, work: &Work) -> Option<String> {
        let id = self.request_id.as_ref()?;
        Some(if work.place == 0 { id.clone() } else { format!("{id}#{}", work.place) })
    }

    /// Whether an earlier run has the answer.
    fn is_done(&self, work: &Work, context: &Context) -> Result<bool> {
        match (&self.asker.done, context.out.place().index) {
            (Some(done), Some(index)) => done.has(index, work.prompt.input()),
            _ => Ok(false),
        }
    }

    /// Asks, and prints what comes.
    fn ask(&self, mut work: Work, context: &mut Context) -> Result<()> {
        let mut spoke = false;
        let id = self.id_of(&work);
        let arguments = (&work.models, id.is_some().then(|| self.asker.engine.body(&work.ask)).transpose()?);
        let arguments = serde_json::json!(arguments);
        let outcome = idempotency::once(id.as_deref(), &arguments, context, |context| {
            let mut listener = Screen { context, spoke: false };
            let outcome = self.asker.engine.message(&mut work, &mut listener);
            spoke = listener.spoke;
            outcome
        });
        self.conclude(spoke, outcome, context)
    }
}

impl Filter for Send {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn wakes(&self) -> Result<Option<OwnedFd>> {
        self.batch.as_ref().map(Batch::wakes).transpose()
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let work = self.asker.work(&body);
        if let Ok(work) = &work
            && self.is_done(work, context)?
        {
            context.out.skip_item();
            return Ok(());
        }
        // An input that is one text has nothing to be asked beside.
        if self.batch.is_none() || matches!(body, Body::Text(_)) {
            let mut work = work?;
            if self.dry_run {
                let request = DryRun::of(&self.asker.engine, &mut work)?;
                return context.out.record(Kind::Item, &request);
            }
            return self.ask(work, context);
        }
        while self.batch.as_ref().is_some_and(|batch| !batch.has_room()) && self.wait(context)? {}
        context.out.defer_item();
        let place = context.out.place();
        self.batch.as_mut().map_or(Ok(()), |batch| batch.give(place, work))
    }

    fn idle(&mut self, context: &mut Context) -> Result<()> {
        while self.advance(context)? {}
        Ok(())
    }

    fn catch_up(&mut self, context: &mut Context) -> Result<()> {
        if self.unordered { Ok(()) } else { self.finish(context) }
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        while self.wait(context)? {}
        Ok(())
    }
}

/// Shows words of answers that are under way.
fn show(words: Vec<Words>, context: &mut Context) -> Result<()> {
    let here = context.out.place();
    for (place, text) in words {
        context.out.set_place(place);
        Screen { context, spoke: true }.words(&text)?;
    }
    context.out.set_place(here);
    Ok(())
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
