//! A program in a person's place: it reads the record and answers by its exit status.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::coprocess::{Child, Grace};
use crate::program::circumstances::encoded;
use crate::signals;
use crate::wire::{Approval, Error, Result};

/// The most characters of an approver's reason that are passed on.
const LONGEST_REASON: usize = 1000;
/// The first exit status that is not an answer: a shell reports so that a program could not run or was killed.
const NO_ANSWER: i32 = 126;
/// How often its end is looked for once its output has ended.
const LOOK: Duration = Duration::from_millis(10);

/// What an approver came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A yes.
    Granted,
    /// A no, with its reason.
    Denied(String),
    /// It could not run, was killed or took too long: nothing was decided.
    Undecided(String),
}

/// Asks a program, and waits until then at most. A signal to this process is an error and no answer.
pub fn ask(argv: &[String], approval: &Approval, until: Option<Instant>) -> Result<Verdict> {
    let Some((program, arguments)) = argv.split_first() else { return Err(Error::usage("the approver is empty")) };
    let undecided = |why: String| Ok(Verdict::Undecided(format!("the approver {why}")));
    let mut record = encoded(approval)?;
    record.push(b'\n');
    let mut child = match Child::start(Command::new(program).args(arguments), Grace::default()) {
        Ok(child) => child,
        Err(error) => return undecided(format!("cannot be used: {}", error.message())),
    };
    // One that decides without reading is free to.
    child.feed(&record)?;
    let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
    let mut output = Vec::new();
    loop {
        match child.read_some(&mut output, left())? {
            Some(0) => break,
            Some(_) => {}
            None => return undecided("did not answer in time".to_owned()),
        }
    }
    while child.is_running() {
        signals::check()?;
        if left().is_zero() {
            return undecided("did not answer in time".to_owned());
        }
        std::thread::sleep(LOOK);
    }
    let status = child.wait()?;
    // A key that interrupts goes to every process of the terminal: its end by that is not its word.
    signals::check()?;
    match status.code() {
        Some(0) => Ok(Verdict::Granted),
        Some(code) if code < NO_ANSWER => {
            let reason: String = String::from_utf8_lossy(&output).trim().chars().take(LONGEST_REASON).collect();
            Ok(Verdict::Denied(if reason.is_empty() { "the approver denied it".to_owned() } else { reason }))
        }
        Some(code) => undecided(format!("exited with status {code}, which decides nothing")),
        None => undecided(format!("was killed before it answered ({status})")),
    }
}
