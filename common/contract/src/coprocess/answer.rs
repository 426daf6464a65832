//! Runs another program for one answer: the last record that it prints, or its exit status and output; or as a part
//! that answers records with records.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::coprocess::child::{Child, Grace};
use crate::coprocess::find;
use crate::signals;
use crate::wire::record::{Kind, Record};
use crate::wire::{Code, Error, Result, record};

/// The longest silence before `each` is called without a line.
const SILENCE: Duration = Duration::from_millis(100);

/// The answer of a program that has exited.
pub struct Answer {
    program: String,
    line: Vec<u8>,
}

#[derive(Deserialize)]
struct Closing {
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    notices: Vec<Notice>,
}

#[derive(Deserialize)]
struct Notice {
    message: String,
}

/// Runs a program of this workspace until it exits, with `input` on its standard input, and returns its answer. Its
/// standard error is discarded, because the answer contains the error. Its failure is returned as ours, with the
/// program's name in `details.part`.
pub fn ask(program: &str, words: &[impl AsRef<OsStr>], input: &[u8], context: &Context) -> Result<Answer> {
    ask_with(program, words, input, context.handed_on())
}

/// Like [`ask`], with `flags` instead of the options that pass the context on.
pub fn ask_with(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    flags: impl IntoIterator<Item = OsString>,
) -> Result<Answer> {
    ask_each(program, words, input, flags, &mut |_| Ok(()))
}

/// Like [`ask_with`], and passes each line before the last to `each`, or `None` when no line has arrived for a moment.
pub fn ask_each(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    flags: impl IntoIterator<Item = OsString>,
    each: &mut dyn FnMut(Option<&[u8]>) -> Result<()>,
) -> Result<Answer> {
    let end = words.iter().position(|word| word.as_ref() == "--").unwrap_or(words.len());
    let (before, operands) = words.split_at(end);
    let mut command = Command::new(find(program)?);
    command.args(before).args(flags).args(["--format", "json"]).args(operands).stderr(Stdio::null());
    let mut child = Child::start(&mut command, Grace::default())?.called(program);
    child.feed(input)?;
    let is_interrupted = signals::interrupted();
    if is_interrupted {
        // A question after a signal records work that was done before it, so its answer is awaited.
        child.outlast_signals();
    }
    let mut line = Vec::new();
    loop {
        while !is_interrupted && !child.wait_line(SILENCE)? {
            each(None)?;
        }
        let Some(next) = child.next_line()? else { break };
        if !line.is_empty() {
            each(Some(&line))?;
        }
        line.clear();
        line.extend_from_slice(next);
    }
    child.wait()?;
    let answer = Answer { program: program.to_owned(), line };
    let record = answer.record()?;
    if !record.ok {
        return Err(record.failure().with_absent("part", program));
    }
    Ok(answer)
}

impl Answer {
    /// Decodes the data.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        let data = self.record()?.data.ok_or_else(|| self.broken("it has no data"))?;
        serde_json::from_str(data.get()).map_err(|e| self.broken(&e.to_string()))
    }

    /// Returns the notices of the closing line.
    pub fn notices(&self) -> Vec<String> {
        let closing = serde_json::from_slice::<Closing>(&self.line);
        closing
            .map(|closing| closing.meta.notices.into_iter().map(|notice| notice.message).collect())
            .unwrap_or_default()
    }

    fn record(&self) -> Result<Record<'_>> {
        Record::parse(&self.line).map_err(|e| self.broken(e.message()))
    }

    fn broken(&self, reason: &str) -> Error {
        Error::new(Code::Io, format!("{} gave no answer: {reason}", self.program))
    }
}

/// The first exit status that is not an answer, because shells use it and higher ones for a program that could not run
/// or was killed.
const NO_ANSWER: i32 = 126;
/// Interval at which its exit is checked after its output has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The result of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The program exited with this status and this output.
    Answer(i32, Vec<u8>),
    /// The program could not run, was killed or timed out.
    Nothing(String),
}

/// Asks a program and waits until `until` for its answer. A signal to this process is an error, not an answer.
pub fn question(argv: &[String], line: &[u8], until: Option<Instant>) -> Result<Said> {
    let Some((program, arguments)) = argv.split_first() else { return Err(Error::usage("the program is empty")) };
    let nothing = |why: String| Ok(Said::Nothing(why));
    let mut child = match Child::start(Command::new(program).args(arguments), Grace::default()) {
        Ok(child) => child,
        Err(error) => return nothing(format!("cannot be used: {}", error.message())),
    };
    // A program may decide without reading its input.
    child.feed(line)?;
    let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
    let mut output = Vec::new();
    loop {
        match child.read_some(&mut output, left())? {
            Some(0) => break,
            Some(_) => {}
            None => return nothing("did not answer in time".to_owned()),
        }
    }
    while child.is_running() {
        signals::check()?;
        if left().is_zero() {
            return nothing("did not answer in time".to_owned());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let status = child.wait()?;
    // A key that interrupts reaches every process of the terminal, so an exit because of it is not an answer.
    signals::check()?;
    match status.code() {
        Some(code) if code < NO_ANSWER => Ok(Said::Answer(code, output)),
        Some(code) => nothing(format!("exited with status {code}, which is not a decision")),
        None => nothing(format!("was killed before it answered ({status})")),
    }
}

/// Returns the output of a program as a reason; `None` if the output is empty.
pub fn reason(output: &[u8]) -> Option<String> {
    /// Maximum length in characters.
    const LONGEST: usize = 1000;
    let text: String = String::from_utf8_lossy(output).trim().chars().take(LONGEST).collect();
    (!text.is_empty()).then_some(text)
}

/// A coprocess that answers records with records.
pub struct Part(Child);

impl Part {
    /// Starts `argv`, whose first word is a path. It shares standard error with this process.
    pub fn start(argv: &[impl AsRef<OsStr>]) -> Result<Self> {
        let (program, arguments) = argv.split_first().ok_or_else(|| Error::usage("the command is empty"))?;
        Child::start(Command::new(program).args(arguments), Grace::default()).map(Self)
    }

    /// Wraps a child process.
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends an open record.
    pub fn send<T: Serialize + ?Sized>(&mut self, kind: Kind, data: &T) -> Result<()> {
        self.send_named(kind.name(), data)
    }

    /// Sends an open record of a private type.
    pub fn send_named<T: Serialize + ?Sized>(&mut self, kind: &str, data: &T) -> Result<()> {
        self.0.write(&record::open_line(kind, data)?)
    }

    /// Receives the next record and passes it to `take`. A record that reports a failure, and the end of its output,
    /// are errors.
    pub fn receive<T>(&mut self, take: impl FnOnce(&str, &Record<'_>) -> Result<T>) -> Result<T> {
        let name = self.0.name().to_owned();
        let Some(line) = self.0.next_line()? else { return Err(self.0.gone()) };
        let record = Record::parse(line).map_err(|e| {
            Error::new(Code::Io, format!("{name} answered with a line that is not a record: {}", e.message())).fatal()
        })?;
        if record.ok { take(&name, &record) } else { Err(failure(&name, &record)) }
    }

    /// Waits at most `limit` for a whole answer. Returns true if [`Part::receive`] will not block.
    pub fn wait(&mut self, limit: Duration) -> Result<bool> {
        self.0.wait_line(limit)
    }

    /// Sends the closing record and closes the input, so that the part can distinguish the end from a broken pipe.
    /// Errors are ignored, because the part may have exited already.
    pub fn end_input(&mut self) {
        if let Ok(line) = record::closed_line(Kind::Summary.name(), &serde_json::Map::new()) {
            let _ = self.0.write(&line);
        }
        self.0.close_input();
    }

    /// Closes the input, reads the answers to the end, and waits for it to exit.
    pub fn finish(mut self) -> Result<()> {
        self.end_input();
        while self.0.next_line()?.is_some() {}
        self.0.wait().map(drop)
    }
}

/// Converts a failure that a part reports to an error with its code, message, hint and details, and the part's name. A
/// failure that closes the stream is fatal.
pub fn failure(part: &str, record: &Record<'_>) -> Error {
    let error = record.failure().with_absent("part", part);
    if record.closed { error.fatal() } else { error }
}

/// Makes the error for an unexpected record.
pub fn unexpected(part: &str, record: &Record<'_>) -> Error {
    let kind = record.kind_name.as_deref().unwrap_or("answer");
    let message = if record.closed && record.kind == Some(Kind::Summary) {
        format!("{part} closed its stream before it answered")
    } else {
        format!("{part} answered with a `{kind}` record")
    };
    Error::new(Code::Io, message).fatal()
}
