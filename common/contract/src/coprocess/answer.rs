//! Runs another program for one answer: the last record that it prints, or its exit status and output.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::coprocess::child::{Child, Grace};
use crate::coprocess::find;
use crate::signals;
use crate::wire::record::Record;
use crate::wire::{Code, Error, Result};

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
