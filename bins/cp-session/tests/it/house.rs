//! A home of its own for each test, and the programs in it.

use std::path::PathBuf;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

pub(crate) struct House {
    pub(crate) root: tempfile::TempDir,
}

/// What a command line came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl House {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cp-session"));
        command.env_clear().env("CP_HOME", self.root.path()).current_dir(self.root.path()).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.feed(arguments, "")
    }

    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> Ran {
        Ran::of(&self.command(arguments).write_stdin(input).output().unwrap())
    }

    /// A new session's id.
    pub(crate) fn start(&self) -> String {
        self.run(&["start"]).data()["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, session: &str) -> PathBuf {
        self.root.path().join("planes/ho1/sessions").join(session).join("session.jsonl")
    }

    /// The entries of a session, but the ledger's own.
    pub(crate) fn entries(&self, session: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file(session)).unwrap();
        let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter(|entry| !entry["event"].as_str().unwrap().starts_with("ledger.")).collect()
    }

    pub(crate) fn count(&self, session: &str) -> u64 {
        self.run(&["count", session]).data()["count"].as_u64().unwrap()
    }
}

impl Ran {
    fn of(output: &Output) -> Self {
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
        assert_eq!(closing["ok"], true, "{closing}");
        assert_eq!(self.exit, 0);
        closing["data"].clone()
    }

    /// Asserts that it failed so, and gives the error.
    pub(crate) fn failed(&self, exit: i32, code: &str) -> Value {
        let error = self.closing()["error"].clone();
        assert_eq!((self.exit, error["code"].as_str()), (exit, Some(code)), "{self:?}");
        error
    }
}

/// A message record, closed.
pub(crate) fn message(user: &str, assistant: &str) -> String {
    let line = serde_json::json!({"ok": true, "schema_version": "1.0", "type": "message", "data": {
        "id": "m1", "role": "assistant", "content": assistant, "tool_calls": [],
        "input": [{"role": "user", "content": user}], "model": "stub", "backend": "stub", "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2, "cost_usd": null}
    }, "meta": {"duration_ms": 1}});
    format!("{line}\n")
}
