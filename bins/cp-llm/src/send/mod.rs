//! The default verb: texts and prompts in, messages out.

mod options;
mod request;
mod resume;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cp_common::context::options::StreamOptions;
use cp_common::output::{Format, Place, Severity, printable_line};
use cp_common::program::{Class, Input, VerbDoc, idempotency};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::stream::{earlier, jobs};
use cp_common::wire::record::Kind;
use cp_common::wire::{Delta, Message, Reply as _, raw};
use cp_common::{Code, Context, Error, Result, keys, signals};
use cp_table::Writer;
use serde_json::value::{RawValue, to_raw_value};

pub(crate) use self::options::{Args, Direct, RequestArgs};
pub(crate) use self::request::{DryRun, RequestBuilder};
use self::resume::EarlierRun;
use crate::code_block;
use crate::engine::{Engine, Listener, Work};
use crate::wire_api::{exact, thoughts};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["delta", "item", "summary"],
    examples: &[
        "cp-llm --backend stub -- hello",
        "cp-llm --backend stub --dry-run -s 'be brief' -- hello",
        "printf 'city\\nOslo\\n' | cp-llm --backend stub --csv 'Where is {{city}}?'",
        "cp-compose --agent default -- hello | cp-llm --backend stub",
    ],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &["llm.request", "llm.response"],
    ..VerbDoc::new("", Class::Governed, "message")
};

/// The time for requests in flight to reach the ledger if their answers are not printed.
const LEDGER_LIMIT: Duration = Duration::from_millis(500);

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let Args { request, direct } = args;
    let (source, engine, requests) = request.prepared(direct, context)?;
    let format = context.out.format();
    let table = requests.table.as_ref().filter(|_| format == Format::Text);
    let writer = table.map(|(table, _)| request.writer(table, &engine, &direct.column)).transpose()?.flatten();
    if let Some(recording) = &direct.replay {
        let message = format!("the answers are from the recording {}: no model was asked", recording.display());
        context.out.notice("replayed", Severity::Info, message);
    }
    let engine = Arc::new(engine);
    let in_parallel = direct.jobs > 1 && source == Source::Input && !direct.dry_run;
    let (shared, warn) = (Arc::clone(&engine), context.out.warner());
    let answered = move |(place, work): (Place, Result<Work>)| {
        let mut listener = Collector { warn: &warn, warnings: Vec::new() };
        let outcome = work.and_then(|mut work| shared.message(&mut work, &mut listener));
        Completed { place, outcome, warnings: listener.warnings }
    };
    let earlier = direct.resume.as_deref().map(|out| EarlierRun::read(out, format, direct.dry_run)).transpose()?;
    let jobs = in_parallel.then(|| Jobs::new(direct.jobs.into(), answered)).transpose()?;
    let mut send = Send { request, direct, engine, requests, earlier, jobs, writer };
    // No other process may resume this output while it is written.
    if source == Source::Input && direct.resume.is_none() {
        earlier::hold_stdout();
    }
    if let Some(writer) = send.writer.as_ref().filter(|_| !direct.dry_run) {
        context.out.writes_failed_lines = true;
        context.out.raw(&writer.header())?;
    }
    let outcome = filter::run(&mut send, source, request.stream_options(), context);
    if let Err(error) = &outcome {
        send.print_remaining(error, context);
    }
    outcome
}

/// The prompts in progress, of which a bounded number is in memory: each with its place, or the error of preparing it,
/// which is reported in order.
type Jobs = jobs::Jobs<(Place, Result<Work>), Completed>;

/// A finished prompt: its place in the input, and the warnings about it.
struct Completed {
    place: Place,
    outcome: Result<Message>,
    warnings: Vec<String>,
}

/// Keeps warnings until the turn of their prompt. Text is printed with the message, because several answers arrive at
/// the same time.
struct Collector<'a> {
    warn: &'a dyn Fn(&str),
    warnings: Vec<String>,
}

impl Listener for Collector<'_> {
    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }

    fn warn_now(&mut self, message: &str) {
        (self.warn)(message);
    }
}

struct Send<'a> {
    request: &'a RequestArgs,
    direct: &'a Direct,
    engine: Arc<Engine>,
    requests: RequestBuilder,
    /// The run that this one resumes.
    earlier: Option<EarlierRun>,
    jobs: Option<Jobs>,
    /// The writer of the answers, if they become a table.
    writer: Option<Writer>,
}

impl Send<'_> {
    /// Prints answers that are paid for after the stream ended early.
    fn print_remaining(&mut self, end: &Error, context: &mut Context) {
        let Some(jobs) = &mut self.jobs else { return };
        // Requests in flight are paid for after a used-up budget or a closed output, but not after a refused key.
        let waits = end.code() != Code::Auth && !signals::interrupted();
        jobs.take_back();
        let remaining = jobs.drain(if waits { Duration::MAX } else { LEDGER_LIMIT });
        let options = self.request.stream_options().without_stop();
        // A closed output gets no more answers.
        for answered in remaining.into_iter().filter(|_| !end.is_reader_gone()) {
            let printed = match answered.outcome {
                Err(error) if error.code() == Code::Interrupted => {
                    context.out.place = answered.place;
                    context.out.item_failed(error)
                }
                // The closing line reports the error that ended the stream.
                Err(error) if error.is_fatal() => Ok(()),
                _ => self.settle(answered, options, context),
            };
            if printed.is_err() {
                return;
            }
        }
    }

    /// Prints an answer that has arrived, or waits for one. Returns false if there is none.
    fn advance(&mut self, waits: bool, context: &mut Context) -> Result<bool> {
        let Some(jobs) = &mut self.jobs else { return Ok(false) };
        let mut answered = jobs.take();
        if answered.is_none() && waits {
            // Output is flushed before a wait.
            context.out.flush()?;
            answered = jobs.wait()?;
        }
        let Some(answered) = answered else { return Ok(false) };
        self.settle(answered, self.request.stream_options(), context)?;
        Ok(true)
    }

    /// Prints and counts an answer.
    fn settle(&mut self, answered: Completed, options: StreamOptions, context: &mut Context) -> Result<()> {
        filter::settle(answered.place, options, context, |context| {
            answered.warnings.iter().for_each(|warning| context.warn(warning));
            self.finish_answer(false, answered.outcome, context)
        })
    }

    /// Prints the end of an answer: the message, unless its text was printed as it arrived.
    fn finish_answer(&mut self, shown: bool, outcome: Result<Message>, context: &mut Context) -> Result<()> {
        let is_printed = shown && context.out.format() != Format::Json;
        if is_printed {
            context.out.raw(b"\n")?;
        }
        if let (Err(error), false, None) = (&outcome, is_printed, &self.writer) {
            print_cut(error, context)?;
        }
        let mut message = self.checked(outcome, context)?;
        if self.direct.extract {
            message.extracted = code_block::first_block(&message.content.text());
            message.mark();
            if message.extracted.is_none() && context.out.format() != Format::Json {
                context.warn("the answer has no fenced code block: its whole text is printed");
            }
        }
        if !is_printed {
            if self.request.reasoning && context.out.format() != Format::Json {
                for thought in thoughts(&message.blocks).filter(|thought| !thought.is_empty()) {
                    context.out.aside(thought.trim_end_matches('\n'));
                    context.out.aside("\n");
                }
            }
            self.print(&message, context)?;
        }
        Ok(())
    }

    /// Writes the record of a failed row, so that a table of answers has a record for each row.
    fn checked<T>(&self, outcome: Result<T>, context: &mut Context) -> Result<T> {
        if let (Some(writer), Err(error)) = (&self.writer, &outcome)
            && !error.is_fatal()
        {
            let row = error.details().get("row").and_then(|row| to_raw_value(row).ok());
            let answer = cut_text(error).map(|text| self.column(&text)).transpose()?;
            context.out.raw(&writer.record(row.as_deref(), answer.as_deref(), error.message()))?;
        }
        outcome
    }

    /// The columns of an answer that is a text.
    fn column(&self, text: &str) -> Result<Box<RawValue>> {
        raw(&BTreeMap::from([(&self.direct.column, text)]))
    }

    /// Prints a message. A paid one is flushed, so that a later failure cannot lose it.
    fn print(&self, message: &Message, context: &mut Context) -> Result<()> {
        let called: Vec<&str> = message.tool_calls.iter().map(|call| call.name.as_str()).collect();
        if !called.is_empty() && context.out.format() != Format::Json && message.text().is_empty() {
            let called = printable_line(&called.join(", "));
            context.warn(&format!("the answer has no text, because the model calls {called}: --format json prints it"));
        }
        match &self.writer {
            Some(writer) => {
                let parsed = message.parsed.as_ref().filter(|parsed| parsed.get().starts_with('{'));
                let line = parsed.map(|parsed| exact(parsed.get().as_bytes(), "").unwrap_or_else(|| parsed.clone()));
                let answer = line.map_or_else(|| self.column(&message.text()), Ok)?;
                context.out.raw(&writer.record(message.row.as_deref(), Some(&answer), ""))?;
            }
            None => context.out.record(Kind::Message, message)?,
        }
        if self.requests.backends.is_metered() { context.out.flush() } else { Ok(()) }
    }

    /// Sends a prompt and prints its answer.
    fn ask(&mut self, mut work: Work, context: &mut Context) -> Result<()> {
        let (mut shown, shows_thoughts) = (false, self.request.reasoning);
        let id = work.request.id.clone();
        // Only a request with an id is compared with earlier ones.
        let named = |_| Ok::<_, Error>((work.target.name(), keys::hash(&work.body()?)));
        let arguments = id.as_ref().map(named).transpose()?;
        let outcome = idempotency::once(id.as_deref(), &arguments, context, |context| {
            let mut listener = Printer { context, shows_thoughts, is_inside: false, shown: false };
            let outcome = self.engine.message(&mut work, &mut listener);
            listener.end_thought();
            shown = listener.shown;
            outcome
        });
        self.finish_answer(shown, outcome, context)
    }
}

impl Filter for Send<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn wakes(&self) -> Result<Option<OwnedFd>> {
        self.jobs.as_ref().map(Jobs::wakes).transpose()
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        if let (Body::Text(_), Some(session)) = (&body, &context.options.session) {
            let how = format!("cp-compose --session {session} -- TEXT | cp-llm | cp-session tee {session}");
            let message =
                format!("the turns of the session were not sent, and the new turns are not stored in it: {how}");
            context.out.notice("session_not_used", Severity::Info, message);
        }
        let work = self.requests.work(&body);
        if let (Ok(work), Some(earlier), Some(index)) = (&work, &self.earlier, context.out.place.index)
            && earlier.has_answered(index, work)?
        {
            context.out.item_skipped();
            return Ok(());
        }
        // A single text needs no concurrency.
        if self.jobs.is_none() || matches!(body, Body::Text(_)) {
            let work = self.checked(work, context)?;
            if self.direct.dry_run {
                return context.out.record(Kind::Item, &DryRun::of(&self.engine, &work)?);
            }
            return self.ask(work, context);
        }
        while self.jobs.as_ref().is_some_and(|jobs| !jobs.has_room()) && self.advance(true, context)? {}
        context.out.defer_item();
        let place = context.out.place;
        self.jobs.as_mut().map_or(Ok(()), |jobs| jobs.give((place, work)))
    }

    fn idle(&mut self, context: &mut Context) -> Result<()> {
        while self.advance(false, context)? {}
        Ok(())
    }

    fn catch_up(&mut self, context: &mut Context) -> Result<()> {
        while self.advance(true, context)? {}
        Ok(())
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        self.catch_up(context)?;
        self.engine.report_lowered(context);
        Ok(())
    }
}

/// The text of an answer that was cut.
fn cut_text(error: &Error) -> Option<String> {
    let mut details = error.details();
    let text = details.remove("partial")?;
    text.as_str().filter(|_| error.code() == Code::Partial).map(str::to_owned)
}

/// Prints the text of an answer that was cut. Without an envelope a failed line ends with a line feed anyway.
pub(crate) fn print_cut(error: &Error, context: &mut Context) -> Result<()> {
    let Some(text) = cut_text(error).filter(|_| context.out.format() != Format::Json) else { return Ok(()) };
    context.out.piece(&text)?;
    if context.out.place.line.is_some() { Ok(()) } else { context.out.raw(b"\n") }
}

/// Prints the progress of an answer.
struct Printer<'a> {
    context: &'a mut Context,
    /// True to show the reasoning: on standard error, or in deltas.
    shows_thoughts: bool,
    /// True if the last line of the reasoning is not complete.
    is_inside: bool,
    /// True if text was printed.
    shown: bool,
}

impl Printer<'_> {
    /// Completes the line of the reasoning before other output.
    fn end_thought(&mut self) {
        if std::mem::take(&mut self.is_inside) {
            self.context.out.aside("\n");
        }
    }

    fn delta(&mut self, delta: &Delta) -> Result<()> {
        self.context.out.streaming()?;
        self.context.out.record(Kind::Delta, delta)?;
        self.context.out.flush()
    }
}

impl Listener for Printer<'_> {
    fn text(&mut self, text: &str) -> Result<()> {
        self.shown = true;
        if self.context.out.format() == Format::Json {
            return self.delta(&Delta::new(text));
        }
        self.end_thought();
        self.context.out.piece(text)?;
        self.context.out.flush()
    }

    fn thinking(&mut self, text: &str) -> Result<()> {
        if !self.shows_thoughts {
            return Ok(());
        }
        if self.context.out.format() == Format::Json {
            return self.delta(&Delta::of_thinking(text));
        }
        self.context.out.aside(text);
        self.is_inside = !text.ends_with('\n');
        Ok(())
    }

    fn warn(&mut self, message: &str) {
        self.end_thought();
        self.context.warn(message);
    }
}
