//! Records in, records out: the item loop of every program that reads a stream.

use std::io::IsTerminal as _;
use std::os::fd::{AsFd, OwnedFd};

use cp_json as json;
use serde_json::value::RawValue;

use crate::context::options::{InputKind, RowFailures, StreamOptions};
use crate::context::{Context, given};
use crate::output::{ItemStatus, Place, Severity};
use crate::stream::lines::{LINE_LIMIT, Lines, Next};
use crate::stream::unread;
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Code, Error, Result};

/// The content of one item.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// Unstructured bytes.
    Text(&'a [u8]),
    /// An envelope.
    Record(Record<'a>),
    /// A bare JSON object.
    Row(&'a RawValue),
}

/// The unit of text on standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texts {
    /// The whole input is one text.
    Whole,
    /// Each line is one text.
    Lines,
}

/// A step that processes each item once, in order, and writes any number of records to `context.out`.
pub trait Filter {
    /// Returns the accepted kinds of records; other kinds are passed on. An empty list accepts all but failures and
    /// closing lines.
    fn accepts(&self) -> &'static [Kind];

    /// Returns the unit of text on standard input.
    fn texts(&self) -> Texts {
        Texts::Whole
    }

    /// Returns the default format of JSON lines without an envelope: rows for programs that take requests.
    fn bare_json(&self) -> InputKind {
        InputKind::Text
    }

    /// True if the filter has done something already, so that the input may be empty or missing.
    fn may_be_empty(&self) -> bool {
        false
    }

    /// For a filter that answers later ([`crate::stream::jobs`]): returns a descriptor that becomes readable when an
    /// answer may be ready. `idle` then runs, and must make it unreadable again.
    fn wakes(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Processes one item. An error fails the item and the stream continues, unless the error is marked fatal. A filter
    /// that answers later calls [`crate::output::Output::defer_item`], and [`settle`] when the answer is ready.
    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()>;

    /// Runs before a line is written that is not the answer to an item. A filter that answers later, in order, must
    /// finish the earlier items here.
    fn catch_up(&mut self, _context: &mut Context) -> Result<()> {
        Ok(())
    }

    /// Runs before a read that could block. A filter must write its pending output here.
    fn idle(&mut self, _context: &mut Context) -> Result<()> {
        Ok(())
    }

    /// Runs at the end of the input.
    fn finish(&mut self, _context: &mut Context) -> Result<()> {
        Ok(())
    }
}

/// The source of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An operand: the whole input. Standard input is not touched.
    Argument(String),
    /// An operand and `-`: the operand, a blank line, and standard input as text.
    ArgumentAndInput(String),
    /// `-` alone: standard input as text.
    InputAsText,
    /// No operand.
    Input,
}

impl Source {
    /// Derives the source from the operands. Fails if there are two texts.
    pub fn from_operands(operands: &[String]) -> Result<Self> {
        let mut texts = operands.iter().filter(|operand| *operand != "-");
        let adds_input = operands.iter().any(|operand| operand == "-");
        let text = texts.next();
        if let Some(second) = texts.next() {
            return Err(
                Error::usage(format!("two texts, the second is `{second}`")).hint("quote it: one argument is one text")
            );
        }
        Ok(match (text, adds_input) {
            (Some(text), false) => Self::Argument(text.clone()),
            (Some(text), true) => Self::ArgumentAndInput(text.clone()),
            (None, true) => Self::InputAsText,
            (None, false) => Self::Input,
        })
    }
}

/// Decodes UTF-8, without a byte order mark at the start. The error names the offset.
pub fn text_of(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map(given::without_mark).map_err(|e| {
        Error::validation(format!("the text is not UTF-8: byte {}", e.valid_up_to()))
            .with("offset", e.valid_up_to())
            .hint("convert it, for example with iconv")
    })
}

/// Runs a filter over its input.
pub fn run(filter: &mut dyn Filter, source: Source, options: StreamOptions, context: &mut Context) -> Result<()> {
    if options.row_failures == RowFailures::Ok {
        context.out.tolerates_failures = true;
    }
    context.out.has_owner(options.closed);
    context.out.filtering();
    if context.out.tolerates_failures {
        // A failure that closes the output by itself would count as a failure of the run.
        context.out.streaming()?;
    }
    match source {
        Source::Argument(text) => {
            if let Some(kind) = options.kind().filter(|kind| *kind != InputKind::Text) {
                return Err(Error::usage(format!("an argument is always text, not {kind:?}").to_lowercase())
                    .hint("pipe records and rows in"));
            }
            unread::refuse_file("add - to read it")?;
            let outcome = one(filter, Body::Text(text.as_bytes()), context);
            unread::note("add - to read it", context);
            outcome
        }
        Source::ArgumentAndInput(text) => {
            let mut whole = text.into_bytes();
            whole.extend_from_slice(b"\n\n");
            whole.extend(read_text(&mut Lines::new(rustix::stdio::stdin()), filter, context)?);
            one(filter, Body::Text(&whole), context)
        }
        Source::InputAsText => run_text(filter, context),
        Source::Input => {
            match refuse_terminal() {
                Err(_) if filter.may_be_empty() => return Ok(()),
                input => input?,
            }
            match options.kind() {
                Some(InputKind::Text) => run_text(filter, context),
                kind => run_lines(filter, kind, options, context),
            }
        }
    }
}

pub(super) fn refuse_terminal() -> Result<()> {
    if std::io::stdin().is_terminal() {
        return Err(Error::usage("no input: standard input is a terminal")
            .hint("give a text, or pipe something in; --help lists the options"));
    }
    Ok(())
}

fn run_text(filter: &mut dyn Filter, context: &mut Context) -> Result<()> {
    match filter.texts() {
        Texts::Whole => {
            let mut lines = Lines::new(rustix::stdio::stdin());
            let text = read_text(&mut lines, filter, context)?;
            one(filter, Body::Text(&text), context)
        }
        Texts::Lines => run_lines(filter, Some(InputKind::Text), StreamOptions::default(), context),
    }
}

fn read_text<F: AsFd>(lines: &mut Lines<F>, filter: &mut dyn Filter, context: &mut Context) -> Result<Vec<u8>> {
    let mut text = lines.rest(&mut || idle(filter, context))?;
    for end in [b'\n', b'\r'] {
        if text.last() == Some(&end) {
            text.pop();
        }
    }
    if text.trim_ascii().is_empty() {
        return Err(empty());
    }
    Ok(text)
}

pub(super) fn empty() -> Error {
    Error::validation("the input is empty").hint("give a text, or pipe something in")
}

fn one(filter: &mut dyn Filter, body: Body<'_>, context: &mut Context) -> Result<()> {
    process_item(filter, body, context)?;
    filter.finish(context)
}

fn process_item(filter: &mut dyn Filter, body: Body<'_>, context: &mut Context) -> Result<()> {
    let outcome = filter.item(body, context);
    let status = context.out.take_item_status();
    outcome?;
    match status {
        ItemStatus::Done => context.out.item_succeeded(),
        ItemStatus::Skipped => context.out.item_skipped(),
        ItemStatus::Deferred => {}
    }
    Ok(())
}

/// Counts a deferred item and writes its failure. `answer` writes records with the item's index.
pub fn settle(
    place: Place,
    options: StreamOptions,
    context: &mut Context,
    answer: impl FnOnce(&mut Context) -> Result<()>,
) -> Result<()> {
    let here = context.out.place();
    context.out.set_place(place);
    let outcome = match answer(context) {
        Ok(()) => {
            context.out.item_succeeded();
            Ok(())
        }
        Err(error) => failed_at(place, error, options, context),
    };
    context.out.set_place(here);
    outcome
}

fn failed_at(place: Place, error: Error, options: StreamOptions, context: &mut Context) -> Result<()> {
    let error = match place.line {
        Some(line) if !error.is_fatal() => error.with_absent("line", line),
        _ => error,
    };
    item_failed(error, options, context)
}

/// Lets the filter write the answers that are due, and restores the place of the current line.
fn caught_up(filter: &mut dyn Filter, context: &mut Context) -> Result<()> {
    let here = context.out.place();
    filter.catch_up(context)?;
    context.out.set_place(here);
    Ok(())
}

fn idle(filter: &mut dyn Filter, context: &mut Context) -> Result<()> {
    filter.idle(context)?;
    context.out.flush()
}

/// State of the stream so far.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) lines: u64,
    pub(super) handled: u64,
    pub(super) unhandled: Vec<(String, u64)>,
    /// True if the last line closed its stream.
    pub(super) closed: bool,
    pub(super) terminated: bool,
    pub(super) text_mode: bool,
}

impl Seen {
    fn count_unhandled(&mut self, name: &str) {
        match self.unhandled.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => self.unhandled.push((name.to_owned(), 1)),
        }
    }
}

fn run_lines(
    filter: &mut dyn Filter,
    kind: Option<InputKind>,
    options: StreamOptions,
    context: &mut Context,
) -> Result<()> {
    let outcome = each_line(filter, kind, options, context);
    if outcome.as_ref().is_err_and(|error| error.code() == Code::Interrupted) {
        // Items that were read are finished before the interruption is reported.
        filter.finish(context)?;
    }
    outcome
}

fn each_line(
    filter: &mut dyn Filter,
    kind: Option<InputKind>,
    options: StreamOptions,
    context: &mut Context,
) -> Result<()> {
    let mut lines = Lines::new(rustix::stdio::stdin()).woken_by(filter.wakes()?);
    let mut kind = kind;
    let mut seen = Seen { terminated: true, ..Seen::default() };
    loop {
        let line = match lines.next(&mut || idle(filter, context))? {
            Next::End => break,
            Next::TooLong(number) => {
                context.out.set_place(Place { index: Some(seen.lines), line: Some(number) });
                seen.lines += 1;
                context.out.streaming()?;
                caught_up(filter, context)?;
                item_failed(too_long(number), options, context)?;
                continue;
            }
            Next::Line(line) => line,
        };
        if kind.is_none() {
            let detected = detected_kind(lines.bytes(&line), filter);
            kind = Some(detected);
            if detected == InputKind::Text && filter.texts() == Texts::Whole {
                lines.put_back(&line);
                let text = read_text(&mut lines, filter, context)?;
                return one(filter, Body::Text(&text), context);
            }
        }
        seen.terminated = line.terminated;
        let place = Place { index: Some(seen.lines), line: Some(line.number) };
        context.out.set_place(place);
        seen.lines += 1;
        let outcome = match kind {
            Some(InputKind::Text) => {
                context.out.streaming()?;
                seen.text_mode = true;
                handle(filter, Body::Text(lines.bytes(&line)), &mut seen, context)
            }
            Some(InputKind::Rows) => {
                context.out.streaming()?;
                row_of(lines.bytes(&line)).and_then(|row| handle(filter, Body::Row(row), &mut seen, context))
            }
            Some(InputKind::Records) | None => take_record(filter, lines.bytes(&line), &mut seen, context),
        };
        if let Err(error) = outcome {
            if !error.is_fatal() {
                caught_up(filter, context)?;
            }
            failed_at(place, error, options, context)?;
        }
    }
    context.out.set_place(Place::default());
    filter.finish(context)?;
    end_of(kind, filter, &seen, options, context)
}

fn detected_kind(line: &[u8], filter: &dyn Filter) -> InputKind {
    if Record::looks_like_one(line) {
        InputKind::Records
    } else if line.trim_ascii_start().starts_with(b"{") {
        filter.bare_json()
    } else {
        InputKind::Text
    }
}

fn take_record(filter: &mut dyn Filter, line: &[u8], seen: &mut Seen, context: &mut Context) -> Result<()> {
    let record = match Record::parse(line) {
        Ok(record) => record,
        Err(error) => {
            context.out.streaming()?;
            seen.closed = false;
            seen.handled += 1;
            return Err(error);
        }
    };
    seen.closed = record.closed;
    if !record.ok {
        caught_up(filter, context)?;
        return context.out.pass_failure(&record);
    }
    if record.kind == Some(Kind::Summary) {
        return context.out.streaming();
    }
    let name = record.kind_name.as_deref().unwrap_or("answer").to_owned();
    let accepted = filter.accepts();
    let ours = accepted.is_empty() || record.kind.is_some_and(|kind| accepted.contains(&kind));
    if !ours {
        seen.count_unhandled(&name);
        context.out.streaming()?;
        caught_up(filter, context)?;
        return context.out.pass(&record.opened());
    }
    // A closed record at the beginning may be the only one, and is then answered with one closed record.
    if !record.closed || seen.lines > 1 {
        context.out.streaming()?;
    }
    handle(filter, Body::Record(record), seen, context)
}

fn handle(filter: &mut dyn Filter, body: Body<'_>, seen: &mut Seen, context: &mut Context) -> Result<()> {
    seen.handled += 1;
    process_item(filter, body, context)
}

pub(super) fn row_of(line: &[u8]) -> Result<&RawValue> {
    json::check(line).map_err(|fault| record::bad_json(&fault))?;
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err(Error::validation("a row must be a JSON object"));
    }
    serde_json::from_slice(line).map_err(|e| Error::validation(format!("not valid JSON: {e}")))
}

pub(super) fn too_long(number: u64) -> Error {
    Error::validation(format!("the line is longer than {} MiB", LINE_LIMIT >> 20)).at_line(number)
}

fn item_failed(error: Error, options: StreamOptions, context: &mut Context) -> Result<()> {
    if error.is_fatal() {
        return Err(error);
    }
    if !options.stops_at_failure() {
        return context.out.item_failed(error);
    }
    let fatal = Error::new(error.code(), error.message().to_owned());
    context.out.item_failed(error)?;
    Err(fatal.hint("--row-failures fail continues after a failed item").fatal())
}

fn end_of(
    kind: Option<InputKind>,
    filter: &dyn Filter,
    seen: &Seen,
    options: StreamOptions,
    context: &mut Context,
) -> Result<()> {
    if seen.lines == 0 {
        // A shard may have no rows, but missing text is a mistake of the caller.
        let is_fine = filter.may_be_empty() || options.kind() == Some(InputKind::Rows);
        return if is_fine { context.out.streaming() } else { Err(empty()) };
    }
    let is_records = matches!(kind, Some(InputKind::Records));
    if is_records && !seen.closed {
        if options.closed {
            return Err(Error::new(Code::Io, "the input ended without its closing line")
                .hint("the program upstream died, or something dropped its last line")
                .fatal());
        }
        let message = "the input ended without its closing line";
        context.out.notice("input_not_closed", Severity::Warning, message);
        if !seen.terminated {
            context.warn(message);
        }
    }
    if is_records && seen.handled == 0 && !seen.unhandled.is_empty() && !context.out.saw_upstream_failure() {
        let got: Vec<String> = seen.unhandled.iter().map(|(name, count)| format!("{count} `{name}`")).collect();
        let expected: Vec<&str> = filter.accepts().iter().map(|kind| kind.name()).collect();
        return Err(Error::validation(format!("got {} records, expected {}", got.join(", "), expected.join(" or ")))
            .hint("for bytes use --input text"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_select_input_source() {
        let of =
            |operands: &[&str]| Source::from_operands(&operands.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).unwrap(), Source::Input);
        assert_eq!(of(&["-"]).unwrap(), Source::InputAsText);
        assert_eq!(of(&["a", "-"]).unwrap(), Source::ArgumentAndInput("a".into()));
        assert_eq!(of(&["a"]).unwrap(), Source::Argument("a".into()));
        assert_eq!(of(&["a", "b"]).unwrap_err().code(), Code::Usage);
    }

    #[test]
    fn text_that_is_not_utf8_fails_with_offset() {
        assert!(text_of(b"ab\xFF").unwrap_err().message().contains("byte 2"));
    }
}
