//! The server under the policy of these tests, and what its answers and its ledgers say.

use cp_testkit::Place;
use serde_json::{Value, json};

use crate::session::{Era, Session};

/// What the tests allow.
pub(super) const POLICY: &str = "[exec]\nallowed_commands = [\"echo\", \"sleep\", \"rm\", \"seq\", \"printf\", \"false\"]\n\n[[exec.rule]]\ncommand = \"rm\"\ndecision = \"ask\"\n";

/// A place with a policy.
pub(super) fn place() -> Place {
    let place = Place::of("cp-mcp");
    place.policy(POLICY);
    place
}

/// Starts a server and greets it.
pub(super) fn start(place: &Place, era: Era, capabilities: Value) -> Session {
    Session::of(place.subject().arg("serve"), era, capabilities)
}

/// The same with options.
pub(super) fn with(place: &Place, era: Era, options: &[&str]) -> Session {
    Session::of(place.subject().arg("serve").args(options), era, json!({}))
}

/// A call of a command line.
pub(super) fn command(line: &str) -> Value {
    json!({"name": "cp_run", "arguments": {"command": line}})
}

/// The text of a result; what is in its data must say the same.
pub(super) fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    match &result["structuredContent"]["output"] {
        Value::String(output) => assert_eq!(*output, text),
        _ => assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), result["structuredContent"]),
    }
    text
}

/// Everything on the ledgers of all sessions.
pub(super) fn ledger(place: &Place) -> Vec<Value> {
    let ran = place.sh("cp-log query --format json --limit 10000 $(find $CP_HOME -name '*.jsonl')");
    ran.of("entry")
}

/// The entries of an event.
pub(super) fn entries(place: &Place, event: &str) -> Vec<Value> {
    ledger(place).into_iter().filter(|entry| entry["event"] == event).collect()
}
