//! Standard output: answers, records, the closing line, and the matching exit status. No other module writes it.

mod closing;
mod records;
mod sink;

use std::sync::Mutex;
use std::time::Instant;

use rustix::stdio::stdout;
use rustix::termios::isatty;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::closing::{Counts, End, Shape, State};
pub(crate) use self::closing::{bug, fail_closed, fails_closed, last_words, status_of};
pub(crate) use self::sink::check_open;
pub use self::sink::{Progress, fitting, has_lost_reader, line_to_stderr, printable, printable_line, to_stderr};
use crate::wire::fields::Fields;
use crate::wire::{Code, Error, without_secrets};

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
pub struct Notice {
    /// The type of the notice, one word.
    pub r#type: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The message.
    pub message: String,
}

/// The place of an item in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The 0-based index among the lines that are not blank; `None` if the input is one text.
    pub index: Option<u64>,
    /// The line number, from 1; `None` if `index` is `None`.
    pub line: Option<u64>,
}

/// The record that ends the output, unless another one follows it.
struct Last {
    /// The line without its last brace, which follows the metadata; empty if the output has none.
    open: Vec<u8>,
    status: u8,
    code: Option<Code>,
    /// True if it is an answer; false for the first record, held back because it may be the only one.
    is_answer: bool,
}

impl Last {
    fn answer(open: Vec<u8>, code: Option<Code>) -> Self {
        Self { is_answer: true, ..Self::record(open, code) }
    }

    fn record(open: Vec<u8>, code: Option<Code>) -> Self {
        Self { open, status: code.map_or(0, |code| code.row().exit), code, is_answer: false }
    }
}

/// Standard output.
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Output {
    /// What must outlive a bug or a signal.
    state: &'static Mutex<State>,
    program: &'static str,
    quiet: bool,
    buffer: Vec<u8>,
    last: Option<Last>,
    /// The place of the input line that the next records answer.
    pub place: Place,
    /// True if the current item was counted, or is counted later.
    pub(crate) is_counted: bool,
    /// Number of failed items without those from upstream.
    own_failures: u64,
    pub(crate) first_failure: Option<Error>,
    /// A failing closing line from upstream, whose code becomes ours.
    upstream_end: Option<Error>,
    /// The members that `--fields` selects; `None` for all. Answers and records are written with only these.
    pub fields: Option<Fields>,
    /// True if failed items do not make the stream fail.
    pub(crate) tolerates_failures: bool,
    /// True if the program continues after the reader closed the pipe.
    outlives_reader: bool,
    rows: Progress,
    /// True if the program itself writes the line of a failed item.
    pub writes_failed_lines: bool,
}

const FLUSH_AT: usize = 64 << 10;
/// Number of failed items that standard error reports individually. Each has its record on standard output.
const FAILURES_SHOWN: u64 = 5;

impl Output {
    pub(crate) fn new(program: &'static str, format: Format, quiet: bool, started: Instant) -> Self {
        let state = State {
            program,
            format,
            started,
            shape: Shape::Answer,
            counts: Counts::default(),
            notices: Vec::new(),
            extras: Map::new(),
            end: End::Open,
            is_part: false,
            is_inside: false,
        };
        Self {
            state: closing::begin(state),
            program,
            quiet,
            buffer: Vec::new(),
            last: None,
            place: Place::default(),
            is_counted: false,
            own_failures: 0,
            first_failure: None,
            upstream_end: None,
            fields: None,
            tolerates_failures: false,
            outlives_reader: false,
            rows: Progress::since(started, !isatty(stdout())),
            writes_failed_lines: false,
        }
    }

    /// Returns the output format.
    pub fn format(&self) -> Format {
        self.state().format
    }

    /// Sets the format and whether standard error is quiet.
    pub(crate) fn set_format(&mut self, format: Format, quiet: bool) {
        self.state().format = format;
        self.quiet = quiet;
    }

    /// Sets whether the calling program reports the end of this one, so that a signal that ends both is reported once.
    pub(crate) fn has_owner(&self, is_part: bool) {
        self.state().is_part = is_part;
    }

    /// Records that the last line was written, and the exit status.
    pub fn ended_with(&mut self, status: u8) {
        self.last = Some(Last { status, ..Last::answer(Vec::new(), None) });
        self.state().end = End::Unmarked;
    }

    /// Begins reports about work that may take long.
    pub fn progress(&self) -> Progress {
        let started = self.state().started;
        Progress::since(started, !self.quiet)
    }

    /// True if the output is text for people. With `--fields` it has the selected members in every format.
    pub fn is_prose(&self) -> bool {
        self.format() == Format::Text && self.fields.is_none()
    }

    /// Continues after the reader closes the pipe, to finish the effect.
    pub fn outlive_reader(&mut self) {
        self.outlives_reader = true;
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

    /// Prints a warning on standard error, unless `--quiet`.
    pub fn warn(&self, message: &str) {
        self.warner()(message);
    }

    /// Prints warnings from other threads.
    pub fn warner(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let (quiet, program) = (self.quiet, self.program);
        move |message| {
            if !quiet {
                line_to_stderr(&format!("{program}: {}", without_secrets(message)));
            }
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

    /// Prints the number of failed items that were not reported individually.
    fn report_remaining_failures(&self) {
        let rest = self.own_failures.saturating_sub(FAILURES_SHOWN);
        if rest > 0 {
            let is_json = self.format() == Format::Json;
            let where_they_are =
                if is_json { "each is a record on standard output" } else { "--format json prints each" };
            line_to_stderr(&format!("{}: {rest} more items failed: {where_they_are}", self.program));
        }
    }

    fn report_error(&self, error: &Error) {
        if error.code() == Code::Interrupted && self.state().is_part {
            return;
        }
        if self.format() == Format::Json {
            return line_to_stderr(&format!("{}: {}", self.program, error.message()));
        }
        let is_named = !self.is_line_of_stream() || error.message().starts_with("line ");
        let place = self.place.line.filter(|_| !is_named).map(|line| format!("line {line}: ")).unwrap_or_default();
        line_to_stderr(&format!("✗ {place}{}", error.message()));
        for (at, line) in error.hint_text().unwrap_or_default().lines().enumerate() {
            line_to_stderr(&format!("  {}{line}", if at == 0 { "Hint: " } else { "" }));
        }
        if let Some(Value::String(line)) = error.details().get("resume") {
            line_to_stderr(&format!("  Resume: {line}"));
        }
    }
}

#[cfg(test)]
mod tests;
