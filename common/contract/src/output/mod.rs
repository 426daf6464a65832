//! Standard output: answers, records, the closing line, and the matching exit status. No other module writes it.

mod closing;
mod items;
mod last;
mod progress;
mod records;
mod sink;
mod update;

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::last::{bug, fail_closed, fails_closed, has_owner, last_words, status_of};
pub use self::progress::Progress;
pub(crate) use self::sink::check_open;
pub use self::sink::{has_lost_reader, line_to_stderr, printable, printable_line, to_stderr};
pub use self::update::{Newest, number};
use crate::wire::fields::Fields;
use crate::wire::{Code, Error, Result, without_secrets};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Envelopes, one a line: for programs
    Json,
    /// Words: for people, and may change
    Text,
    /// The bytes themselves, without an envelope
    Raw,
}

/// The severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information only.
    Info,
    /// Something may be wrong.
    Warning,
}

/// Information for the caller when nothing failed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notice {
    /// The type of the notice, one word.
    pub r#type: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The message.
    pub message: String,
}

/// The place of an item in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The 0-based index among the lines that are not blank; `None` if the input is one text.
    pub index: Option<u64>,
    /// The line number, from 1; `None` if `index` is `None`.
    pub line: Option<u64>,
}

/// The status of the item that a filter has just processed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ItemStatus {
    /// Succeeded.
    #[default]
    Done,
    /// Skipped.
    Skipped,
    /// Deferred.
    Deferred,
}

/// The number of items by outcome.
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

/// The first record, held back because it may be the only one and then closes the stream.
enum Held {
    /// Our own record, without the last brace.
    Own { open: Vec<u8>, failure: Option<Code> },
    /// A failure from upstream, passed on unchanged if it is the only record.
    Upstream { line: Vec<u8>, opened: Vec<u8>, failure: Code },
}

/// A failing closing line from upstream, whose code becomes ours.
struct UpstreamEnd {
    code: Code,
    error: Map<String, Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing was written yet, and the program is not a filter: its only line has no type.
    Answer,
    /// A filter that may answer with one closed record.
    Filter,
    /// Open records and a summary.
    Stream,
}

/// The condition under which a stream fails because of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fails {
    IfAnyFailed,
    Never,
}

/// The state of the closing line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClosingLine {
    ToCome,
    Written,
}

/// The reaction to a reader that closes the pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// The program ends without an error.
    StopsProgram,
    /// The program continues, to finish an effect.
    Ignored,
    /// The reader has closed the pipe, and the program continues.
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
    /// The exit status after the last line: an answer, a passed closing line, or bytes with their own status.
    ended: Option<u8>,
    line: ClosingLine,
    /// The code of an answer that reports a failure.
    refused: Option<Code>,
    place: Place,
    item_status: ItemStatus,
    pub(crate) counts: Counts,
    /// Number of failed items without those from upstream.
    own_failures: u64,
    first_failure: Option<Error>,
    upstream_failures: bool,
    upstream_end: Option<UpstreamEnd>,
    notices: Vec<Notice>,
    extras: Map<String, Value>,
    fields: Option<Fields>,
    pub(crate) fails: Fails,
    reader: Reader,
    /// The progress of rows, from the first one that takes long.
    rows: Option<Progress>,
    /// Words after the number of rows.
    rows_note: String,
    /// True if the program itself writes the line of a failed item.
    writes_failed_lines: bool,
}

const FLUSH_AT: usize = 64 << 10;
/// Number of failed items that standard error reports individually. Each has its record on standard output.
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
            fails: Fails::IfAnyFailed,
            reader: Reader::StopsProgram,
            rows: None,
            rows_note: String::new(),
            writes_failed_lines: false,
        }
    }

    /// Returns the output format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Sets the members that `--fields` selects.
    pub(crate) fn choose(&mut self, fields: Option<Fields>) {
        self.fields = fields;
    }

    /// Returns the members that `--fields` selects; `None` for all. Answers and records are written with only these.
    pub fn fields(&self) -> Option<&Fields> {
        self.fields.as_ref()
    }

    /// Begins a stream of several records that the reader must receive immediately.
    pub fn streaming(&mut self) -> Result<()> {
        self.set_shape(Shape::Stream);
        self.release()
    }

    /// Marks the program as a filter, which may answer with a single closed record.
    pub fn filtering(&mut self) {
        if self.shape == Shape::Answer {
            self.set_shape(Shape::Filter);
        }
    }

    /// Passes a line on byte for byte.
    pub fn pass(&mut self, line: &[u8]) -> Result<()> {
        self.release()?;
        self.put(line)?;
        self.put(b"\n")
    }

    /// Writes bytes without changes, for `--format raw` or streamed text.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes)
    }

    /// Writes a piece of streamed text; formats other than raw escape control characters.
    pub fn piece(&mut self, text: &str) -> Result<()> {
        match self.format {
            Format::Raw => self.put(text.as_bytes()),
            Format::Json | Format::Text => self.put(printable(text).as_bytes()),
        }
    }

    /// Records that the last line was written, and the exit status.
    pub fn ended_with(&mut self, status: u8) {
        self.ended = Some(status);
        last::state().ending = last::Ending::Unmarked;
    }

    /// Begins reports about work that may take long.
    pub fn progress(&self) -> Progress {
        Progress::since(self.started, !self.quiet)
    }

    /// Sets words that follow the number of rows in reports about them.
    pub fn note_rows(&mut self, note: String) {
        self.rows_note = note;
    }

    /// Continues after the reader closes the pipe, to finish the effect.
    pub fn outlive_reader(&mut self) {
        self.reader = Reader::Ignored;
    }

    /// Adds a notice to the closing line.
    pub fn notice(&mut self, kind: &'static str, severity: Severity, message: impl Into<String>) {
        let message = without_secrets(&message.into());
        self.notices.push(Notice { r#type: kind, severity, message });
    }

    /// Returns the notices for the closing line so far.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Adds a member to the data of the closing summary.
    pub fn extra(&mut self, name: &str, value: impl Into<Value>) {
        self.extras.insert(name.to_owned(), value.into());
    }

    /// True if the reader of standard output closed the pipe, for programs that wait without writing.
    pub fn has_lost_reader(&self) -> bool {
        sink::has_lost_reader()
    }

    /// Prints a warning on standard error, unless `--quiet`.
    pub fn warn(&self, message: &str) {
        if !self.quiet {
            line_to_stderr(&format!("{}: {}", self.program, without_secrets(message)));
        }
    }

    /// Prints lines on standard error, unless `--quiet`. Quoted text must be escaped already.
    pub fn explain(&self, text: &str) {
        if !self.quiet {
            to_stderr(&format!("{}: {}\n", self.program, without_secrets(text)));
        }
    }

    /// Prints streamed text on standard error, unless `--quiet`, to accompany standard output.
    pub fn aside(&self, text: &str) {
        if !self.quiet {
            sink::aside_to_stderr(text);
        }
    }

    /// True if a line on standard error can be erased with [`Self::erase_aside`].
    pub fn can_erase(&self) -> bool {
        !self.quiet && sink::is_terminal()
    }

    /// Erases the current line of standard error.
    pub fn erase_aside(&self) {
        sink::erase_stderr_line();
    }

    /// Returns the message of the first failed item.
    pub(crate) fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_ref().map(Error::message)
    }

    /// True if a failure from upstream was passed on.
    pub(crate) fn saw_upstream_failure(&self) -> bool {
        self.upstream_failures
    }

    /// Prints the number of failed items that were not reported individually.
    fn report_remaining_failures(&self) {
        let Some(rest) = self.unreported_failures().filter(|rest| *rest > 0) else { return };
        let where_they_are = match self.format {
            Format::Json => "each is a record on standard output",
            Format::Text | Format::Raw => "--format json prints each",
        };
        line_to_stderr(&format!("{}: {rest} more items failed: {where_they_are}", self.program));
    }

    /// Returns the number of our failed items that were not reported; `None` if all were.
    fn unreported_failures(&self) -> Option<u64> {
        self.own_failures.checked_sub(FAILURES_SHOWN)
    }

    fn report_error(&self, error: &Error) {
        if error.code() == Code::Interrupted && last::state().is_part {
            return;
        }
        line_to_stderr(&match self.format {
            Format::Json => format!("{}: {}", self.program, error.message()),
            Format::Text | Format::Raw => match self.place.line.filter(|_| self.is_line_of_stream()) {
                Some(line) if !error.message().starts_with("line ") => format!("✗ line {line}: {}", error.message()),
                _ => format!("✗ {}", error.message()),
            },
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

#[cfg(test)]
mod tests;
