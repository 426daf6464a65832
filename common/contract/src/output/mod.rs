//! The one place that writes standard output: answers, records, the closing line, and the exit status that goes with it.

mod closed;
mod closing;
mod items;
mod last;
mod printable;
mod sink;
mod update;
mod writing;

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use self::closed::check_open;
pub(crate) use self::last::{bug, fail_closed, fails_closed, has_owner, last_words, names_no_format, status_of};
pub use self::printable::{printable, printable_line};
pub use self::sink::{line_to_stderr, to_stderr};
pub use self::update::{Newest, number};
use crate::wire::fields::Fields;
use crate::wire::record::{self, Kind};
use crate::wire::{Code, Error, Reply, Result, without_secrets};

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Envelopes, one a line: for programs
    Json,
    /// Words: for people, and may change
    Text,
    /// The bytes themselves, without an envelope
    Raw,
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something may be wrong.
    Warning,
}

/// What a caller should know though nothing failed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notice {
    /// Which one it is, in one word.
    pub r#type: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What there is to know.
    pub message: String,
}

/// The place of an item in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The 0-based index among the lines that are not blank. None for an input that is one text.
    pub index: Option<u64>,
    /// The line, from 1. None where `index` is.
    pub line: Option<u64>,
}

/// How the counts take the item that a filter has just returned from.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ItemStatus {
    /// Done.
    #[default]
    Done,
    /// Left out.
    Skipped,
    /// Not known yet.
    Deferred,
}

/// How many items a stream had, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    fn members(self) -> Map<String, Value> {
        let total = self.succeeded + self.failed + self.skipped;
        let rows =
            [("total", total), ("succeeded", self.succeeded), ("failed", self.failed), ("skipped", self.skipped)];
        rows.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
    }
}

/// The record that may yet turn out to be alone, and so to close itself.
enum Held {
    /// Ours: everything but the last brace.
    Own { open: Vec<u8>, failure: Option<Code> },
    /// A failure from upstream: passed as it came if it is alone.
    Upstream { line: Vec<u8>, opened: Vec<u8>, failure: Code },
}

/// A failing closing line from upstream: its code becomes ours.
struct UpstreamEnd {
    code: Code,
    error: Map<String, Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing was written yet, and the program is not a filter: its one line has no type.
    Answer,
    /// A filter that may answer with one closed record.
    Filter,
    /// Open records and a summary.
    Stream,
}

/// When a stream fails because of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fails {
    WhereAllDid,
    WhereOneDid,
    Never,
}

/// Whether the closing line is among what is or was in the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClosingLine {
    ToCome,
    Written,
}

/// What happens when the reader of our output goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// We end too, quietly.
    EndsUs,
    /// We go on: an effect is finished first.
    IsOutlived,
    /// It has gone, and we go on.
    Gone,
}

enum Sink {
    Stdout,
    #[cfg(test)]
    Memory,
}

/// Standard output.
pub struct Output {
    sink: Sink,
    buffer: Vec<u8>,
    format: Format,
    quiet: bool,
    program: &'static str,
    started: Instant,
    shape: Shape,
    held: Option<Held>,
    /// The last line is out: an answer, a passed closing line, or bytes with their own status.
    ended: Option<u8>,
    line: ClosingLine,
    /// The code of an answer that was a refusal.
    refused: Option<Code>,
    place: Place,
    item_status: ItemStatus,
    pub(crate) counts: Counts,
    /// The failures of items that are not upstream's.
    own_failures: u64,
    first_failure: Option<Error>,
    upstream_failures: bool,
    upstream_end: Option<UpstreamEnd>,
    notices: Vec<Notice>,
    extras: Map<String, Value>,
    fields: Option<Fields>,
    pub(crate) fails: Fails,
    reader: Reader,
}

const FLUSH_AT: usize = 64 << 10;
/// The number of failed items that standard error reports one by one. Each has its record on standard output.
const FAILURES_SHOWN: u64 = 5;

impl Output {
    pub(crate) fn new(program: &'static str, format: Format, quiet: bool, started: Instant) -> Self {
        last::begin(program, format, started);
        Self {
            sink: Sink::Stdout,
            buffer: Vec::new(),
            format,
            quiet,
            program,
            started,
            shape: Shape::Answer,
            held: None,
            ended: None,
            line: ClosingLine::ToCome,
            refused: None,
            place: Place::default(),
            item_status: ItemStatus::Done,
            counts: Counts::default(),
            own_failures: 0,
            first_failure: None,
            upstream_failures: false,
            upstream_end: None,
            notices: Vec::new(),
            extras: Map::new(),
            fields: None,
            fails: Fails::WhereAllDid,
            reader: Reader::EndsUs,
        }
    }

    /// How results are written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Before a failure: a person at a terminal reads it once, in words and with what helps.
    fn fail_in_words(&mut self) {
        if self.format == Format::Json && !last::stand().records_failure() {
            self.format = Format::Text;
        }
    }

    /// Says which members of its answers were asked for.
    pub(crate) fn choose(&mut self, fields: Option<Fields>) {
        self.fields = fields;
    }

    /// The members that were asked for; none for all of them. Answers and records are written with only these.
    pub fn fields(&self) -> Option<&Fields> {
        self.fields.as_ref()
    }

    /// Writes the one line of a verb that is not a filter.
    pub fn answer<T: Reply + ?Sized>(&mut self, data: &T) -> Result<()> {
        match (self.format, &self.fields) {
            (Format::Json, fields) => {
                let whole = encode(data)?;
                let chosen = fields.as_ref().map(|fields| fields.project(&whole));
                let mut line = record::head(true, None);
                record::member(&mut line, "data", chosen.as_deref().unwrap_or(&whole));
                self.write_closed(line)?;
            }
            (Format::Text | Format::Raw, Some(fields)) => {
                let lines = fields.lines(&encode(data)?);
                self.put_chosen(&lines)?;
            }
            (Format::Text, None) => self.put_text(&data.text())?,
            (Format::Raw, None) => self.put(&data.raw())?,
        }
        self.ended = Some(0);
        Ok(())
    }

    /// Writes the one line of a verb that did its work and found something wrong: the error, on standard output, and its exit.
    pub fn refuse<T: Reply + ?Sized>(&mut self, data: &T, error: Error) -> Result<()> {
        let error = &error.without_secrets();
        self.fail_in_words();
        match self.format {
            Format::Json => self.fail_closed(error)?,
            Format::Text => {
                self.put_text(&data.text())?;
                self.say_error(error);
            }
            Format::Raw => {
                self.put(&data.raw())?;
                self.say_error(error);
            }
        }
        self.ended = Some(error.code().row().exit);
        self.refused = Some(error.code());
        Ok(())
    }

    /// Writes a record: open, or closing itself when it turns out to be alone.
    pub fn record<T: Reply + ?Sized>(&mut self, kind: Kind, data: &T) -> Result<()> {
        match (self.format, &self.fields) {
            (_, Some(_)) => self.record_chosen(kind, &encode(data)?),
            (Format::Json, None) => {
                let mut open = record::head(true, Some(kind.name()));
                open.extend_from_slice(b",\"data\":");
                serde_json::to_writer(&mut open, data).map_err(|e| cannot_encode(&e))?;
                self.index(&mut open);
                self.emit(Held::Own { open, failure: None })
            }
            (Format::Text, None) => self.put_text(&data.text()),
            (Format::Raw, None) => self.put(&data.raw()),
        }
    }

    /// Writes a record whose data is bytes of JSON that we did not make.
    pub fn record_raw(&mut self, kind: Kind, data: &RawValue) -> Result<()> {
        match (self.format, &self.fields) {
            (_, Some(_)) => self.record_chosen(kind, data.get().as_bytes()),
            (Format::Json, None) => {
                let mut open = record::head(true, Some(kind.name()));
                record::member(&mut open, "data", data.get().as_bytes());
                self.index(&mut open);
                self.emit(Held::Own { open, failure: None })
            }
            (Format::Text, None) => self.put_text(data.get()),
            (Format::Raw, None) => {
                self.put(data.get().as_bytes())?;
                self.put(b"\n")
            }
        }
    }

    /// Writes a record with only the members that were asked for.
    fn record_chosen(&mut self, kind: Kind, data: &[u8]) -> Result<()> {
        let Some(fields) = &self.fields else { return Ok(()) };
        if self.format != Format::Json {
            let lines = fields.lines(data);
            return self.put_chosen(&lines);
        }
        let mut open = record::head(true, Some(kind.name()));
        record::member(&mut open, "data", &fields.project(data));
        self.index(&mut open);
        self.emit(Held::Own { open, failure: None })
    }

    /// Bare objects, one a line: what `--fields` chooses is for a program, or for a person who knows the names.
    fn put_chosen(&mut self, lines: &[u8]) -> Result<()> {
        match self.format {
            Format::Text => self.put(printable(&String::from_utf8_lossy(lines)).as_bytes()),
            Format::Json | Format::Raw => self.put(lines),
        }
    }

    /// Says that several records will come and each must be seen at once.
    pub fn streaming(&mut self) -> Result<()> {
        self.set_shape(Shape::Stream);
        self.release()
    }

    /// Says that the program answers records with records, and may close with one of them.
    pub fn filtering(&mut self) {
        if self.shape == Shape::Answer {
            self.set_shape(Shape::Filter);
        }
    }

    /// Passes a line on, byte for byte.
    pub fn pass(&mut self, line: &[u8]) -> Result<()> {
        self.release()?;
        self.put(line)?;
        self.put(b"\n")
    }

    /// Writes bytes as they are: `--format raw`, or words as they come.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes)
    }

    /// Writes a piece of a text as it comes: its bytes in the raw format, words with controls made visible in any other.
    pub fn piece(&mut self, text: &str) -> Result<()> {
        match self.format {
            Format::Raw => self.put(text.as_bytes()),
            Format::Json | Format::Text => self.put(printable(text).as_bytes()),
        }
    }

    /// Says that the last line is out, and with which status the program leaves.
    pub fn ended_with(&mut self, status: u8) {
        self.ended = Some(status);
    }

    /// Goes on when the reader has gone: the effect is finished first.
    pub fn outlive_reader(&mut self) {
        self.reader = Reader::IsOutlived;
    }

    /// Adds a notice to the closing line.
    pub fn notice(&mut self, kind: &'static str, severity: Severity, message: impl Into<String>) {
        let message = without_secrets(&message.into());
        self.notices.push(Notice { r#type: kind, severity, message });
    }

    /// What the closing line will say so far.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Adds a member to the data of the closing summary.
    pub fn extra(&mut self, name: &str, value: impl Into<Value>) {
        self.extras.insert(name.to_owned(), value.into());
    }

    /// Whether the reader of standard output has gone: for those that wait and have nothing to write meanwhile.
    pub fn has_lost_reader(&self) -> bool {
        sink::has_lost_reader()
    }

    /// Writes a line for people on standard error, unless `--quiet`.
    pub fn warn(&self, message: &str) {
        if !self.quiet {
            line_to_stderr(&format!("{}: {}", self.program, without_secrets(message)));
        }
    }

    /// Writes lines for people on standard error, unless `--quiet`. What they quote is escaped already.
    pub fn explain(&self, text: &str) {
        if !self.quiet {
            to_stderr(&format!("{}: {}\n", self.program, without_secrets(text)));
        }
    }

    /// Writes words on standard error as they come, unless `--quiet`: what belongs beside those on standard output.
    pub fn aside(&self, text: &str) {
        if !self.quiet {
            sink::aside_to_stderr(text);
        }
    }

    /// Whether a line can be begun on standard error and taken back, as [`Self::erase_aside`] does.
    pub fn can_erase(&self) -> bool {
        !self.quiet && sink::is_terminal()
    }

    /// Takes back the line that was begun on standard error.
    pub fn erase_aside(&self) {
        sink::erase_stderr_line();
    }

    /// Why the first item failed.
    pub(crate) fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_ref().map(Error::message)
    }

    /// Whether nothing but an upstream failure has come so far.
    pub(crate) fn saw_upstream_failure(&self) -> bool {
        self.upstream_failures
    }

    /// Adds the item's index to the object that the line ends with.
    fn index(&self, line: &mut Vec<u8>) {
        let (Some(index), Some(b'}')) = (self.place.index, line.last()) else { return };
        line.pop();
        let separator = if line.ends_with(b"{") { "" } else { "," };
        line.extend_from_slice(format!("{separator}\"index\":{index}}}").as_bytes());
    }

    /// Says how many failures of items were not said one by one.
    fn say_rest(&self) {
        let Some(rest) = self.unsaid().filter(|rest| *rest > 0) else { return };
        let where_they_are = match self.format {
            Format::Json => "each is a record on standard output",
            Format::Text | Format::Raw => "--format json prints each",
        };
        line_to_stderr(&format!("{}: {rest} more items failed: {where_they_are}", self.program));
    }

    /// How many failures of items were ours and not said; none where all were.
    fn unsaid(&self) -> Option<u64> {
        self.own_failures.checked_sub(FAILURES_SHOWN)
    }

    fn say_error(&self, error: &Error) {
        if error.code() == Code::Interrupted && last::stand().is_part {
            return;
        }
        line_to_stderr(&match self.format {
            Format::Json => format!("{}: {}", self.program, error.message()),
            Format::Text | Format::Raw => format!("✗ {}", error.message()),
        });
        if let (Some(hint), true) = (error.hint_text(), self.format != Format::Json) {
            for (at, line) in hint.lines().enumerate() {
                line_to_stderr(&format!("  {}{line}", if at == 0 { "Hint: " } else { "" }));
            }
        }
        if let (Some(Value::String(line)), true) = (error.details().get("resume"), self.format != Format::Json) {
            line_to_stderr(&format!("  Resume: {line}"));
        }
    }
}

fn encode<T: Serialize + ?Sized>(data: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(data).map_err(|e| cannot_encode(&e))
}

fn cannot_encode(e: &serde_json::Error) -> Error {
    Error::new(Code::Unknown, format!("encoding a record: {e}"))
}

#[cfg(test)]
mod tests;
