//! A program in a person's place: it reads the record and answers by its exit status.

use std::time::Instant;

use crate::coprocess::{Said, question, reason};
use crate::program::circumstances::encoded;
use crate::wire::{Approval, Result};

/// What an approver came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Approved.
    Granted,
    /// A no, with its reason.
    Denied(String),
    /// It could not run, was killed or took too long: nothing was decided.
    Undecided(String),
}

/// Asks a program, and waits until then at most. A signal to this process is an error and no answer.
pub fn ask(argv: &[String], approval: &Approval, until: Option<Instant>) -> Result<Verdict> {
    let mut record = encoded(approval)?;
    record.push(b'\n');
    Ok(match question(argv, &record, until)? {
        Said::Answer(0, _) => Verdict::Granted,
        Said::Answer(_, output) => {
            Verdict::Denied(reason(&output).unwrap_or_else(|| "the approver denied it".to_owned()))
        }
        Said::Nothing(why) => Verdict::Undecided(format!("the approver {why}")),
    })
}
