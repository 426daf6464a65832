//! Records in, records out: the item loop of every program that reads a stream.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::os::fd::{BorrowedFd, OwnedFd};

use cp_json as json;
use serde_json::value::RawValue;

use crate::context::Context;
use crate::context::given::{note_unread_input, refuse_unread_file, without_line_end};
use crate::context::options::{InputKind, RowFailures, StreamOptions};
use crate::output::{Place, Severity};
use crate::stream::lines::Lines;
use crate::wire::record::{Kind, Record, bad_json};
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

impl<'a> Body<'a> {
    /// Parses a line of the input.
    pub(super) fn of(kind: InputKind, line: &'a [u8]) -> Result<Self> {
        match kind {
            InputKind::Text => Ok(Self::Text(line)),
            InputKind::Records => Record::parse(line).map(Self::Record),
            InputKind::Rows => {
                json::check(line).map_err(|fault| bad_json(&fault))?;
                if !line.trim_ascii_start().starts_with(b"{") {
                    return Err(Error::validation("a row must be a JSON object"));
                }
                let row = serde_json::from_slice(line);
                row.map(Self::Row).map_err(|e| Error::validation(format!("not valid JSON: {e}")))
            }
        }
    }
}

/// A step that processes each item once, in order, and writes any number of records to `context.out`.
pub trait Filter {
    /// Returns the accepted kinds of records; other kinds are passed on. An empty list accepts all but failures and
    /// closing lines.
    fn accepts(&self) -> &'static [Kind];

    /// True if each line of text on standard input is an item; otherwise the whole text is one.
    fn takes_lines(&self) -> bool {
        false
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
        let texts: Vec<&String> = operands.iter().filter(|operand| *operand != "-").collect();
        match (texts.as_slice(), texts.len() < operands.len()) {
            ([], false) => Ok(Self::Input),
            ([], true) => Ok(Self::InputAsText),
            ([text], false) => Ok(Self::Argument((*text).clone())),
            ([text], true) => Ok(Self::ArgumentAndInput((*text).clone())),
            ([_, second, ..], _) => {
                let error = Error::usage(format!("two texts, the second is `{second}`"));
                Err(error.hint("quote it: one argument is one text"))
            }
        }
    }
}

/// Runs a filter over its input.
pub fn run(filter: &mut dyn Filter, source: Source, options: StreamOptions, context: &mut Context) -> Result<()> {
    context.out.has_owner(options.closed);
    context.out.filtering();
    if options.row_failures == RowFailures::Ok {
        context.out.tolerates_failures = true;
        // A failure that closes the output by itself would count as a failure of the run.
        context.out.streaming()?;
    }
    let kind = match source {
        Source::Argument(text) => {
            if let Some(kind) = options.kind().filter(|kind| *kind != InputKind::Text) {
                return Err(Error::usage(format!("an argument is always text, not {kind:?}").to_lowercase())
                    .hint("pipe records and rows in"));
            }
            refuse_unread_file("add - to read it")?;
            let outcome = one(filter, text.as_bytes(), context);
            note_unread_input("add - to read it", context);
            return outcome;
        }
        Source::ArgumentAndInput(text) => {
            let input = read_text(&mut Lines::new(rustix::stdio::stdin()), filter, context)?;
            return one(filter, &[text.as_bytes(), b"\n\n", &input].concat(), context);
        }
        Source::InputAsText => Some(InputKind::Text),
        Source::Input => match refuse_terminal() {
            Err(_) if filter.may_be_empty() => return Ok(()),
            input => input.map(|()| options.kind())?,
        },
    };
    let outcome = each_line(filter, kind, options, context);
    if outcome.as_ref().is_err_and(|error| error.code() == Code::Interrupted) {
        // Items that were read are finished before the interruption is reported.
        filter.finish(context)?;
    }
    outcome
}

pub(super) fn refuse_terminal() -> Result<()> {
    if std::io::stdin().is_terminal() {
        return Err(Error::usage("no input: standard input is a terminal")
            .hint("give a text, or pipe something in; --help lists the options"));
    }
    Ok(())
}

fn read_text(lines: &mut Lines<BorrowedFd<'_>>, filter: &mut dyn Filter, context: &mut Context) -> Result<Vec<u8>> {
    let mut text = lines.rest(&mut || idle(filter, context))?;
    text.truncate(without_line_end(&text).len());
    if text.trim_ascii().is_empty() {
        return Err(empty());
    }
    Ok(text)
}

pub(super) fn empty() -> Error {
    Error::validation("the input is empty").hint("give a text, or pipe something in")
}

fn one(filter: &mut dyn Filter, text: &[u8], context: &mut Context) -> Result<()> {
    process_item(filter, Body::Text(text), context)?;
    filter.finish(context)
}

fn process_item(filter: &mut dyn Filter, body: Body<'_>, context: &mut Context) -> Result<()> {
    context.out.is_counted = false;
    filter.item(body, context)?;
    if !context.out.is_counted {
        context.out.item_succeeded();
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
    let here = std::mem::replace(&mut context.out.place, place);
    let outcome = match answer(context) {
        Ok(()) => {
            context.out.item_succeeded();
            Ok(())
        }
        Err(error) => item_failed(error, options, context),
    };
    context.out.place = here;
    outcome
}

/// Writes the failure of the item at the current place, unless it ends the stream.
fn item_failed(mut error: Error, options: StreamOptions, context: &mut Context) -> Result<()> {
    if error.is_fatal() {
        return Err(error);
    }
    if let Some(line) = context.out.place.line {
        error = error.with_absent("line", line);
    }
    if options.row_failures != RowFailures::Stop && options.continue_on_error != Some(false) {
        return context.out.item_failed(error);
    }
    let fatal = Error::new(error.code(), error.message().to_owned());
    context.out.item_failed(error)?;
    Err(fatal.hint("--row-failures fail continues after a failed item").fatal())
}

/// Lets the filter write the answers that are due, and restores the place of the current line.
fn caught_up(filter: &mut dyn Filter, context: &mut Context) -> Result<()> {
    let here = context.out.place;
    filter.catch_up(context)?;
    context.out.place = here;
    Ok(())
}

fn idle(filter: &mut dyn Filter, context: &mut Context) -> Result<()> {
    filter.idle(context)?;
    context.out.flush()
}

/// State of the stream so far.
#[derive(Default)]
struct Seen {
    lines: u64,
    handled: u64,
    /// The number of records of each kind that the filter does not accept.
    unhandled: BTreeMap<String, u64>,
    /// True if the last line closed its stream.
    closed: bool,
    terminated: bool,
}

fn each_line(
    filter: &mut dyn Filter,
    mut kind: Option<InputKind>,
    options: StreamOptions,
    context: &mut Context,
) -> Result<()> {
    let mut lines = Lines::new(rustix::stdio::stdin()).woken_by(filter.wakes()?);
    let mut seen = Seen::default();
    loop {
        if kind == Some(InputKind::Text) && !filter.takes_lines() {
            let text = read_text(&mut lines, filter, context)?;
            return one(filter, &text, context);
        }
        let Some(line) = lines.next(&mut || idle(filter, context))? else { break };
        if let (None, Ok(bytes)) = (kind, lines.bytes(&line)) {
            kind = Some(detected_kind(bytes, filter));
            lines.put_back(&line);
            continue;
        }
        seen.terminated = line.terminated;
        context.out.place = Place { index: Some(seen.lines), line: Some(line.number) };
        seen.lines += 1;
        let kind = kind.unwrap_or(InputKind::Records);
        let body = lines.bytes(&line).and_then(|bytes| Body::of(kind, bytes));
        if let Err(error) = take(filter, kind, body, &mut seen, context) {
            if !error.is_fatal() {
                caught_up(filter, context)?;
            }
            item_failed(error, options, context)?;
        }
    }
    context.out.place = Place::default();
    filter.finish(context)?;
    if seen.lines == 0 {
        // A shard may have no rows, but missing text is a mistake of the caller.
        let is_fine = filter.may_be_empty() || options.kind() == Some(InputKind::Rows);
        return if is_fine { context.out.streaming() } else { Err(empty()) };
    }
    if kind == Some(InputKind::Records) { end_of_records(filter, &seen, options, context) } else { Ok(()) }
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

/// Handles a line, or passes it on.
fn take(
    filter: &mut dyn Filter,
    kind: InputKind,
    body: Result<Body<'_>>,
    seen: &mut Seen,
    context: &mut Context,
) -> Result<()> {
    if body.is_err() || (kind != InputKind::Records && seen.handled == 0) {
        context.out.streaming()?;
    }
    if let Ok(Body::Record(record)) = &body {
        seen.closed = record.closed;
        let accepted = filter.accepts();
        if !record.ok {
            seen.handled += 1;
            caught_up(filter, context)?;
            return context.out.pass_failure(record);
        }
        if record.kind == Some(Kind::Summary) {
            return context.out.streaming();
        }
        if !accepted.is_empty() && record.kind.is_none_or(|kind| !accepted.contains(&kind)) {
            let name = record.kind_name.as_deref().unwrap_or("answer");
            *seen.unhandled.entry(name.to_owned()).or_default() += 1;
            context.out.streaming()?;
            caught_up(filter, context)?;
            return context.out.pass(&record.opened());
        }
        // A closed record at the beginning may be the only one, and is then answered with one closed record.
        if !record.closed || seen.lines > 1 {
            context.out.streaming()?;
        }
    } else {
        seen.closed = false;
    }
    seen.handled += 1;
    process_item(filter, body?, context)
}

/// Fails, or adds a notice, because the last record was not a closing line.
pub(super) fn unclosed(terminated: bool, options: StreamOptions, context: &mut Context) -> Result<()> {
    let message = "the input ended without its closing line";
    if options.closed {
        let error = Error::new(Code::Io, message).fatal();
        return Err(error.hint("the program upstream died, or something dropped its last line"));
    }
    context.out.notice("input_not_closed", Severity::Warning, message);
    if !terminated {
        context.warn(message);
    }
    Ok(())
}

fn end_of_records(filter: &dyn Filter, seen: &Seen, options: StreamOptions, context: &mut Context) -> Result<()> {
    if !seen.closed {
        unclosed(seen.terminated, options, context)?;
    }
    if seen.handled == 0 && !seen.unhandled.is_empty() {
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
}
