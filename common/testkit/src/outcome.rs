//! The outcome of a command line, as its caller sees it.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;

use assert_cmd::assert::Assert;
use serde_json::Value;

/// The outcome of a command line. A failed assertion prints the command, the status and all output.
pub struct Outcome {
    /// The exit status, or 128 plus the number of the signal that ended it, as in a shell's `$?`.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    command: String,
    output: Output,
}

impl Outcome {
    pub(crate) fn new(command: String, output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            status: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            command,
            output,
        }
    }

    /// Returns the bytes of standard output, which need not be text.
    pub fn bytes(&self) -> &[u8] {
        &self.output.stdout
    }

    /// Returns the outcome for `assert_cmd`: `.assert().success().stdout(contains("…"))`.
    pub fn assert(&self) -> Assert {
        Assert::new(self.output.clone()).append_context("command", self.command.clone())
    }

    /// Asserts that the exit status is 0.
    #[track_caller]
    #[expect(clippy::return_self_not_must_use, reason = "the assertion may be all that is wanted")]
    pub fn success(self) -> Self {
        self.code(0)
    }

    /// Asserts the exit status.
    #[track_caller]
    #[expect(clippy::return_self_not_must_use, reason = "the assertion may be all that is wanted")]
    pub fn code(self, status: i32) -> Self {
        assert_eq!(self.status, status, "the exit status\n{self:?}");
        self
    }

    /// Returns the lines of standard output as JSON.
    #[track_caller]
    pub fn records(&self) -> Vec<Value> {
        let lines = self.output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let shown = String::from_utf8_lossy(line);
                serde_json::from_slice(line).unwrap_or_else(|e| panic!("not JSON ({e}): {shown}\n{self:?}"))
            })
            .collect()
    }

    /// Returns the data of the records of a kind.
    #[track_caller]
    pub fn of(&self, kind: &str) -> Vec<Value> {
        let records = self.records().into_iter().filter(|record| record["type"] == kind);
        records.map(|mut record| record["data"].take()).collect()
    }

    /// Returns the only line as JSON.
    #[track_caller]
    pub fn only(&self) -> Value {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "the number of lines\n{self:?}");
        records.remove(0)
    }

    /// Returns the closing line: the last one, which must have `meta`, and whose `ok` must agree with the exit status.
    #[track_caller]
    pub fn closing(&self) -> Value {
        let closing = self.records().pop().unwrap_or_else(|| panic!("no output\n{self:?}"));
        assert!(closing.get("meta").is_some(), "the last line is no closing line\n{self:?}");
        assert_eq!(closing["ok"] == true, self.status == 0, "`ok` and the exit status disagree\n{self:?}");
        closing
    }

    /// Returns the data of the closing line of a success.
    #[track_caller]
    pub fn data(&self) -> Value {
        let mut closing = self.closing();
        assert_eq!(self.status, 0, "the exit status\n{self:?}");
        closing["data"].take()
    }

    /// Asserts that the command failed with this status and this code, and returns the error.
    #[track_caller]
    pub fn failed(&self, status: i32, code: &str) -> Value {
        let error = self.error();
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "the failure\n{self:?}");
        error
    }

    /// Returns the error of the closing line; null if there is none.
    #[track_caller]
    pub fn error(&self) -> Value {
        self.closing()["error"].take()
    }

    /// Returns the first error in any line, because the error of an item has a line of its own.
    #[track_caller]
    pub fn first_error(&self) -> Value {
        let mut records = self.records().into_iter();
        let found = records.find_map(|mut record| record.get_mut("error").map(Value::take));
        found.unwrap_or_else(|| panic!("no error\n{self:?}"))
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, stdout, stderr, command, .. } = self;
        write!(f, "$ {command}\nstatus: {status}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

/// Parses lines of JSON, such as those of a ledger. An incomplete last line is ignored.
#[track_caller]
pub fn records_of(bytes: &[u8]) -> Vec<Value> {
    let (whole, begun) = bytes.split_at(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let parse = |line: &[u8]| {
        serde_json::from_slice(line).unwrap_or_else(|e| panic!("not JSON ({e}): {}", String::from_utf8_lossy(line)))
    };
    lines.map(parse).chain(serde_json::from_slice(begun).ok()).collect()
}

#[cfg(test)]
mod tests {
    use predicates::str::contains;

    use super::*;
    use crate::Place;

    const CLOSED: &str = r#"{"ok":false,"error":{"code":"E_IO"},"meta":{}}"#;

    fn printed(text: &str, status: i32) -> Outcome {
        Place::new().program("sh").args(["-c", "cat; echo why >&2; exit $0", &status.to_string()]).stdin(text).run()
    }

    #[test]
    fn outcome_reads_error_of_closing_line_and_records_by_kind() {
        let ran = printed(&format!("{{\"type\":\"a\",\"data\":1}}\n{{\"type\":\"b\"}}\n{CLOSED}\n"), 3);
        assert_eq!(ran.failed(3, "E_IO")["code"], "E_IO");
        assert_eq!((ran.of("a").len(), ran.records().len()), (1, 3));
        ran.assert().code(3).stderr(contains("why"));
    }

    #[test]
    #[should_panic(expected = "disagree")]
    fn closing_line_that_disagrees_with_status_fails() {
        printed(CLOSED, 0).closing();
    }

    #[test]
    fn failed_assertion_prints_command_status_and_output() {
        let ran = printed("{\"x\":1}\n", 4);
        let shown = format!("{ran:?}");
        for part in ["$ CP_HOME=", "exit $0", "status: 4", "{\"x\":1}", "why"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
