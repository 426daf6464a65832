//! An approver program: it reads an approval record and answers by its exit status.

use std::time::Instant;

use crate::coprocess::{Said, question, reason};
use crate::program::circumstances::encoded;
use crate::wire::{Approval, Result};

/// The outcome of an approver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Approved.
    Granted,
    /// Denied, with the reason.
    Denied(String),
    /// The approver could not run, was killed or timed out, so nothing was decided.
    Undecided(String),
}

/// Runs an approver and waits until `until` for its answer. A signal to this process is an error, not an answer.
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
