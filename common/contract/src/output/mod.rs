//! Standard output: answers, records, the closing line, and the matching exit status. No other module writes it.

mod closing;
mod items;
mod progress;
mod records;
mod sink;
mod state;
mod update;

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::progress::Progress;
pub(crate) use self::sink::check_open;
pub use self::sink::{has_lost_reader, line_to_stderr, printable, printable_line, to_stderr};
use self::state::{End, Shape, State};
pub(crate) use self::state::{bug, fail_closed, fails_closed, last_words, status_of};
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

/// The first record, held back because it may be the only one and then closes the stream.
struct Held {
    /// The record as an open one.
    open: Vec<u8>,
    /// The line from upstream, which is passed on unchanged if it is the only record.
    closed: Option<Vec<u8>>,
    failure: Option<Code>,
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

/// Standard output.
pub struct Output {
    state: &'static Mutex<State>,
    buffer: Vec<u8>,
    held: Option<Held>,
    /// The exit status and the code after the last line: an answer, a passed closing line, or bytes with their own
    /// status.
    ended: Option<(u8, Option<Code>)>,
    place: Place,
    item_status: ItemStatus,
    /// Number of failed items without those from upstream.
    own_failures: u64,
    first_failure: Option<Error>,
    upstream_failures: bool,
    /// A failing closing line from upstream, whose code becomes ours.
    upstream_end: Option<Error>,
    fields: Option<Fields>,
    /// True if failed items do not make the stream fail.
    pub(crate) tolerates_failures: bool,
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
        let (counts, notices, extras) = (Counts::default(), Vec::new(), Map::new());
        let (shape, end) = (Shape::Answer, End::Open);
        let state = State {
            program,
            format,
            quiet,
            started,
            shape,
            counts,
            notices,
            extras,
            end,
            is_part: false,
            inside: false,
        };
        Self {
            state: state::begin(state),
            buffer: Vec::new(),
            held: None,
            ended: None,
            place: Place::default(),
            item_status: ItemStatus::Done,
            own_failures: 0,
            first_failure: None,
            upstream_failures: false,
            upstream_end: None,
            fields: None,
            tolerates_failures: false,
            reader: Reader::StopsProgram,
            rows: None,
            rows_note: String::new(),
            writes_failed_lines: false,
        }
    }

    /// Locks the state until the end of the statement, in which nothing else may lock it.
    fn state(&self) -> MutexGuard<'static, State> {
        state::lock(self.state)
    }

    /// Returns the output format.
    pub fn format(&self) -> Format {
        self.state().format
    }

    /// Sets the format and whether standard error is quiet.
    pub(crate) fn set_format(&mut self, format: Format, quiet: bool) {
        self.state().format = format;
        self.state().quiet = quiet;
    }

    fn is_quiet(&self) -> bool {
        self.state().quiet
    }

    fn program(&self) -> &'static str {
        self.state().program
    }

    fn shape(&self) -> Shape {
        self.state().shape
    }

    /// Sets whether the calling program reports the end of this one, so that a signal that ends both is reported once.
    pub(crate) fn has_owner(&self, is_part: bool) {
        self.state().is_part = is_part;
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
        self.state().shape = Shape::Stream;
        self.release()
    }

    /// Marks the program as a filter, which may answer with a single closed record.
    pub fn filtering(&mut self) {
        let mut state = self.state();
        if state.shape == Shape::Answer {
            state.shape = Shape::Filter;
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
        match self.format() {
            Format::Raw => self.put(text.as_bytes()),
            Format::Json | Format::Text => self.put(printable(text).as_bytes()),
        }
    }

    /// Records that the last line was written, and the exit status.
    pub fn ended_with(&mut self, status: u8) {
        self.ended = Some((status, None));
        self.state().end = End::Unmarked;
    }

    /// Begins reports about work that may take long.
    pub fn progress(&self) -> Progress {
        let started = self.state().started;
        Progress::since(started, !self.is_quiet())
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
        self.state().notices.push(Notice { r#type: kind, severity, message });
    }

    /// Returns the notices for the closing line so far.
    pub fn notices(&self) -> Vec<Notice> {
        self.state().notices.clone()
    }

    /// Adds a member to the data of the closing summary.
    pub fn extra(&mut self, name: &str, value: impl Into<Value>) {
        self.state().extras.insert(name.to_owned(), value.into());
    }

    /// True if the reader of standard output closed the pipe, for programs that wait without writing.
    pub fn has_lost_reader(&self) -> bool {
        sink::has_lost_reader()
    }

    /// Prints a warning on standard error, unless `--quiet`.
    pub fn warn(&self, message: &str) {
        if !self.is_quiet() {
            line_to_stderr(&format!("{}: {}", self.program(), without_secrets(message)));
        }
    }

    /// Prints lines on standard error, unless `--quiet`. Quoted text must be escaped already.
    pub fn explain(&self, text: &str) {
        if !self.is_quiet() {
            to_stderr(&format!("{}: {}\n", self.program(), without_secrets(text)));
        }
    }

    /// Prints streamed text on standard error, unless `--quiet`, to accompany standard output.
    pub fn aside(&self, text: &str) {
        if !self.is_quiet() {
            sink::aside_to_stderr(text);
        }
    }

    /// True if a line on standard error can be erased with [`Self::erase_aside`].
    pub fn can_erase(&self) -> bool {
        !self.is_quiet() && sink::is_terminal()
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
        let where_they_are = match self.format() {
            Format::Json => "each is a record on standard output",
            Format::Text | Format::Raw => "--format json prints each",
        };
        line_to_stderr(&format!("{}: {rest} more items failed: {where_they_are}", self.program()));
    }

    /// Returns the number of our failed items that were not reported; `None` if all were.
    fn unreported_failures(&self) -> Option<u64> {
        self.own_failures.checked_sub(FAILURES_SHOWN)
    }

    fn report_error(&self, error: &Error) {
        if error.code() == Code::Interrupted && self.state().is_part {
            return;
        }
        line_to_stderr(&match self.format() {
            Format::Json => format!("{}: {}", self.program(), error.message()),
            Format::Text | Format::Raw => match self.place.line.filter(|_| self.is_line_of_stream()) {
                Some(line) if !error.message().starts_with("line ") => format!("✗ line {line}: {}", error.message()),
                _ => format!("✗ {}", error.message()),
            },
        });
        if let (Some(hint), true) = (error.hint_text(), self.format() != Format::Json) {
            for (at, line) in hint.lines().enumerate() {
                line_to_stderr(&format!("  {}{line}", if at == 0 { "Hint: " } else { "" }));
            }
        }
        if let (Some(Value::String(line)), true) = (error.details().get("resume"), self.format() != Format::Json) {
            line_to_stderr(&format!("  Resume: {line}"));
        }
    }
}

#[cfg(test)]
mod tests;
