//! A place with sessions in its home, and what the tests of all verbs ask about them.

use std::ops::Deref;
use std::path::PathBuf;

use cp_testkit::Place;
use serde_json::Value;

pub(crate) struct Sessions(Place);

impl Deref for Sessions {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self(Place::of("cp-session"))
    }

    /// A new session's id.
    pub(crate) fn start(&self) -> String {
        self.run(&["start"]).data()["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, session: &str) -> PathBuf {
        self.home.join("planes/ho1/sessions").join(session).join("session.jsonl")
    }

    /// The entries of a session, but the ledger's own.
    pub(crate) fn entries(&self, session: &str) -> Vec<Value> {
        let entries = self.home.records(self.file(session)).into_iter();
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
