//! What a command line came to, as its caller reads it.

use std::process::Output;

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// The last line.
    pub(crate) fn closing(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_else(|| panic!("no output; stderr: {}", self.stderr));
        serde_json::from_str(line).unwrap()
    }

    pub(crate) fn data(&self) -> Value {
        let closing = self.closing();
        assert_eq!((closing["ok"].as_bool(), self.exit), (Some(true), 0), "{closing}");
        closing["data"].clone()
    }

    /// Asserts that it failed so, and gives the error.
    pub(crate) fn failed(&self, exit: i32, code: &str) -> Value {
        let error = self.closing()["error"].clone();
        assert_eq!((self.exit, error["code"].as_str()), (exit, Some(code)), "{self:?}");
        error
    }
}
