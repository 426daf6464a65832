//! Runs another program for one answer, the last record that it prints; and reports what it answers wrongly.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use duct::cmd;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::Context;
use crate::coprocess::child::{Child, ChildOptions};
use crate::coprocess::find;
use crate::signals;
use crate::wire::record::{Kind, Record};
use crate::wire::{Code, Error, Result};

/// The longest silence before `each` is called without a line.
const SILENCE: Duration = Duration::from_millis(20);

/// The answer of a program that has exited.
#[derive(Debug, Deserialize)]
pub struct Answer<T> {
    /// Its data.
    pub data: T,
    meta: Value,
}

impl<T> Answer<T> {
    /// Returns the notices of the closing line.
    pub fn notices(&self) -> impl Iterator<Item = &str> {
        let notices = self.meta["notices"].as_array().into_iter().flatten();
        notices.filter_map(|notice| notice["message"].as_str())
    }
}

/// Runs a program of this workspace until it exits, with `input` on its standard input, and returns the data of its
/// answer. Its standard error is discarded, because the answer contains the error. Its failure is returned as ours,
/// with the program's name in `details.part`.
pub fn ask<T: DeserializeOwned>(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    context: &Context,
) -> Result<T> {
    ask_with(program, words, input, context.handed_on())
}

/// Like [`ask`], with `flags` instead of the options that pass the context on.
pub fn ask_with<T: DeserializeOwned>(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    flags: impl IntoIterator<Item = OsString>,
) -> Result<T> {
    ask_each(program, words, input, flags, &mut |_| Ok(())).map(|answer| answer.data)
}

/// Like [`ask_with`], and passes each line before the last to `each`, or `None` when no line has arrived for a moment.
pub fn ask_each<T: DeserializeOwned>(
    program: &str,
    words: &[impl AsRef<OsStr>],
    input: &[u8],
    flags: impl IntoIterator<Item = OsString>,
    each: &mut dyn FnMut(Option<&[u8]>) -> Result<()>,
) -> Result<Answer<T>> {
    let mut words: Vec<OsString> = words.iter().map(|word| word.as_ref().to_owned()).collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, flags.into_iter().chain(["--format", "json"].map(OsString::from)));
    let mut child = Child::start(program, &cmd(find(program)?, words).stderr_null(), ChildOptions::DEFAULT)?;
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
    let broken = |reason: &str| Error::new(Code::Io, format!("{program} gave no answer: {reason}"));
    let record = Record::parse(&line).map_err(|e| broken(e.message()))?;
    if !record.ok {
        return Err(record.failure().with_absent("part", program));
    }
    serde_json::from_slice(&line).map_err(|e| broken(&e.to_string()))
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
