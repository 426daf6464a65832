//! A program that answers one question: it reads a line and answers by its exit status and its output.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{Child, Grace};
use crate::signals;
use crate::wire::{Error, Result};

/// The first exit status that is not an answer, because shells use it and higher ones for a program that could not run
/// or was killed.
const NO_ANSWER: i32 = 126;
/// Interval at which its exit is checked after its output has ended.
const LOOK: Duration = Duration::from_millis(10);

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
        std::thread::sleep(LOOK);
    }
    let status = child.wait()?;
    // A key that interrupts reaches every process of the terminal, so an exit because of it is not an answer.
    signals::check()?;
    match status.code() {
        Some(code) if code < NO_ANSWER => Ok(Said::Answer(code, output)),
        Some(code) => nothing(format!("exited with status {code}, which decides nothing")),
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
