//! The approvers: a program that answers by its exit status, or a person at the terminal.

use std::fmt::Write as _;
use std::time::Instant;

use crate::coprocess::{Said, question, reason};
use crate::output::{printable, printable_line};
use crate::program::idempotency::encoded;
use crate::program::terminal;
use crate::wire::{Approval, Level, Result, Scope};

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

/// The answer of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Granted, with its scope.
    Yes(Scope),
    /// Denied.
    No,
}

impl Answer {
    /// Parses the typed answer; `None` if it is not one of the choices.
    pub fn of(typed: &str, approval: &Approval) -> Option<Self> {
        match typed.trim().to_lowercase().as_str() {
            "y" | "yes" => Some(Self::Yes(Scope::Once)),
            "n" | "no" => Some(Self::No),
            "a" | "always" if approval.scopes.contains(&Scope::Run) => Some(Self::Yes(Scope::Run)),
            _ => None,
        }
    }
}

/// Describes the request. Control characters are escaped, and no quoted text can forge a line.
pub fn description(approval: &Approval) -> String {
    let shown = &approval.shown;
    let mut text = format!("{}\n", printable_line(&approval.subject()));
    for line in shown.diff.iter().flat_map(|diff| diff.lines()) {
        let _ = writeln!(text, "    {}", printable(line));
    }
    for command in &shown.ran {
        let _ = writeln!(text, "  ran before: {}", printable_line(command));
    }
    if !shown.variables.is_empty() {
        let _ =
            writeln!(text, "  with {} set, to values that are not shown", printable_line(&shown.variables.join(", ")));
    }
    if let Some(cwd) = &shown.cwd {
        let _ = writeln!(text, "  in {}", printable_line(cwd));
    }
    let _ = writeln!(text, "  risk {}, {}: {}", shown.risk, printable_line(&shown.rule), printable_line(&shown.why));
    let asked_by = &approval.asked_by;
    let _ = write!(text, "  asked by {} at {}", printable_line(&asked_by.agent), approval.asked_at);
    for (name, value) in [("run", &asked_by.run), ("call", &asked_by.call_id)] {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {}", printable_line(value));
        }
    }
    if approval.level == Level::Owner {
        text.push_str("\n  The policy leaves this to its owner.");
    }
    text
}

/// Returns the question with the possible answers.
pub fn prompt(approval: &Approval) -> String {
    let always = if approval.scopes.contains(&Scope::Run) { ", a = always for this run" } else { "" };
    format!("Allow it? y = yes, n = no{always}: ")
}

/// Asks at the terminal and waits until `until`. `None` if there is no terminal or no decision.
pub fn at_terminal(approval: &Approval, until: Option<Instant>) -> Result<Option<Answer>> {
    let question = format!("{}\n{}", description(approval), prompt(approval));
    terminal::ask(&question, until, |typed| Answer::of(typed, approval))
}
