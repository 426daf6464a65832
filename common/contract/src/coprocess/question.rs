//! A program that is asked one thing: it reads a line and answers by its exit status and what it prints.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{Child, Grace};
use crate::signals;
use crate::wire::{Error, Result};

/// The first exit status that is not an answer: a shell reports so that a program could not run or was killed.
const NO_ANSWER: i32 = 126;
/// How often its end is looked for once its output has ended.
const LOOK: Duration = Duration::from_millis(10);

/// What a program that was asked came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It ended with this status, and printed this.
    Answer(i32, Vec<u8>),
    /// It could not run, was killed or took too long.
    Nothing(String),
}

/// Asks a program, and waits until then at most. A signal to this process is an error and no answer.
pub fn question(argv: &[String], line: &[u8], until: Option<Instant>) -> Result<Said> {
    let Some((program, arguments)) = argv.split_first() else { return Err(Error::usage("the program is empty")) };
    let nothing = |why: String| Ok(Said::Nothing(why));
    let mut child = match Child::start(Command::new(program).args(arguments), Grace::default()) {
        Ok(child) => child,
        Err(error) => return nothing(format!("cannot be used: {}", error.message())),
    };
    // One that decides without reading is free to.
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
    // A key that interrupts goes to every process of the terminal: its end by that is not its word.
    signals::check()?;
    match status.code() {
        Some(code) if code < NO_ANSWER => Ok(Said::Answer(code, output)),
        Some(code) => nothing(format!("exited with status {code}, which decides nothing")),
        None => nothing(format!("was killed before it answered ({status})")),
    }
}

/// What a program printed, as a reason that is passed on; none where it printed nothing.
pub fn reason(output: &[u8]) -> Option<String> {
    /// The most characters of it.
    const LONGEST: usize = 1000;
    let text: String = String::from_utf8_lossy(output).trim().chars().take(LONGEST).collect();
    (!text.is_empty()).then_some(text)
}
