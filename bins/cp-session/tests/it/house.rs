//! A home of its own for each test, and the programs in it.

use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;

use crate::ran::Ran;

pub(crate) struct House {
    pub(crate) root: tempfile::TempDir,
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

/// A message record, closed.
pub(crate) fn message(user: &str, assistant: &str) -> String {
    let line = serde_json::json!({"ok": true, "schema_version": "1.0", "type": "message", "data": {
        "id": "m1", "role": "assistant", "content": assistant, "tool_calls": [],
        "input": [{"role": "user", "content": user}], "model": "stub", "backend": "stub", "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2, "cost_usd": null}
    }, "meta": {"duration_ms": 1}});
    format!("{line}\n")
}
