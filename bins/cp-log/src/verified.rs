//! The report of `cp-log verify` on one file: its faults, and the properties that were proved and those that were not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use cp_common::wire::Reply;
use cp_common::{Code, Error};
use cp_ledger::proof::verifier::Report;
use cp_ledger::proof::whole::Findings;
use cp_ledger::proof::{Fault, NotProved};
use serde::Serialize;

/// The report on one file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verified {
    /// The file.
    file: String,
    /// True if nothing is wrong.
    intact: bool,
    /// How many lines there are.
    lines: u64,
    /// How many bytes there are.
    bytes: u64,
    /// The number of the first line.
    first_seq: Option<u64>,
    /// The number of the last line.
    last_seq: Option<u64>,
    /// The hash of the last line, which stands for all lines before it.
    hash: Option<String>,
    /// How the file ends: complete, or `in_flight` with bytes of a line that is not whole.
    tail: &'static str,
    /// How many faults there are.
    fault_count: u64,
    /// The first hundred of them.
    faults: Vec<Fault>,
    /// The properties that were proved, and how many of each; see cp-ledger(5).
    proved: BTreeMap<&'static str, u64>,
    /// The properties that could not be proved, and why.
    not_proved: Vec<NotProved>,
    /// True if all lines are JSON that claims no place in a chain.
    #[serde(skip)]
    is_unchained: bool,
}

impl Verified {
    /// Combines the report on the lines of a file with the properties that were proved and those that were not.
    pub(crate) fn new(path: &Path, report: Report, found: Findings) -> Self {
        Self {
            file: path.display().to_string(),
            intact: report.fault_count == 0,
            lines: report.lines,
            bytes: report.bytes,
            first_seq: report.first,
            last_seq: report.last.map(|(seq, _)| seq),
            hash: report.last.map(|(_, hash)| hash.to_string()),
            tail: if report.in_flight { "in_flight" } else { "complete" },
            fault_count: report.fault_count,
            faults: report.faults,
            proved: found.proved,
            not_proved: found.not_proved,
            is_unchained: report.lines > 0 && report.unchained == report.lines,
        }
    }

    /// True if nothing in it is a line of a ledger.
    pub(crate) fn is_foreign(&self) -> bool {
        self.lines > 0 && self.first_seq.is_none() && self.proved.is_empty() && self.is_unchained
    }

    /// The error that stands for the faults, with the message of the first.
    pub(crate) fn error(&self) -> Option<Error> {
        let first = self.faults.first()?;
        if self.is_unchained {
            let message =
                format!("not a ledger: its {} lines are JSON without hashes, so nothing proves them", self.lines);
            return Some(Error::validation(message).in_file(Path::new(&self.file)).with("lines", self.lines));
        }
        let seq = first.seq.map_or(String::new(), |seq| format!(", seq {seq}"));
        let more = if self.fault_count > 1 { format!("; {} faults in all", self.fault_count) } else { String::new() };
        let message = format!("line {} at byte {}{seq}: {}{more}", first.line, first.offset, first.message);
        let mut error = integrity_error(&self.file, message, self);
        for (name, value) in [("line", first.line), ("offset", first.offset)] {
            error = error.with(name, value);
        }
        Some(
            error
                .with("kind", serde_json::to_value(first.kind).unwrap_or_default())
                .with("seq", first.seq)
                .hint("look at the line with sed -n LINEp; cp-ledger(5) explains each kind"),
        )
    }
}

/// An integrity error that has the members of a report as its details.
pub(crate) fn integrity_error(file: &str, message: String, report: &impl Serialize) -> Error {
    let error = Error::new(Code::Integrity, message).in_file(Path::new(file));
    match serde_json::to_value(report) {
        Ok(serde_json::Value::Object(members)) => {
            members.into_iter().fold(error, |error, (name, value)| error.with(&name, value))
        }
        _ => error,
    }
}

impl Reply for Verified {
    /// A line for each fault, or one that says that there is none.
    fn text(&self) -> String {
        if self.faults.is_empty() {
            let mut sum = Sum { ledgers: 1, ..Sum::default() };
            sum.add(self);
            return sum.text();
        }
        let line = |fault: &Fault| {
            let kind = serde_json::to_value(fault.kind).unwrap_or_default();
            let kind = kind.as_str().unwrap_or_default();
            let seq = fault.seq.map_or(String::new(), |seq| format!(", seq {seq}"));
            format!("{}:{}: {kind} at byte {}{seq}: {}", self.file, fault.line, fault.offset, fault.message)
        };
        self.faults.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The reason why the number of lines is not proved where nothing was signed.
pub(crate) const UNSIGNED: &str =
    "there is no checkpoint, so last lines may have been removed: cp-log checkpoint signs one";

/// A count, and what is counted.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What is well, in one line for a person.
#[derive(Default)]
pub(crate) struct Sum {
    /// The ledgers that were looked at.
    pub(crate) ledgers: u64,
    lines: u64,
    faults: u64,
    unsigned: u64,
    /// What else could not be proved.
    open: Vec<String>,
}

impl Sum {
    /// Adds a file.
    pub(crate) fn add(&mut self, one: &Verified) {
        self.lines += one.lines;
        self.faults += one.fault_count;
        for open in &one.not_proved {
            if open.why == UNSIGNED {
                self.unsigned += 1;
            } else {
                self.open.push(format!("{}: not proved: {}: {}", one.file, open.what, open.why));
            }
        }
    }

    /// One line, and one for each property that could not be proved.
    pub(crate) fn text(&self) -> String {
        let (ledgers, lines) = (counted(self.ledgers, "ledger"), counted(self.lines, "line"));
        let result = if self.faults == 0 { "intact".to_owned() } else { counted(self.faults, "fault") };
        let mut sum = format!("{ledgers}, {lines}: {result}.");
        if self.unsigned > 0 {
            let some = if self.unsigned == self.ledgers { "Not".to_owned() } else { format!("{} not", self.unsigned) };
            let _ = write!(sum, " {some} signed, so removed last lines would not be noticed: cp-log checkpoint.");
        }
        [&[sum], &self.open[..]].concat().join("\n")
    }
}
