//! Approval of calls: who approves, how long an approval lasts, and that a stop does not extend it.

use std::time::{Duration, Instant};

use cp_testkit::{Outcome, Signal, Terminal, until};
use serde_json::{Value, json};

use crate::toolloop::{Results, ToolLoop, words_of};

/// A place whose model replaces the file `f`, once.
fn overwrites() -> ToolLoop {
    let place = ToolLoop::new();
    place.policy("[paths]\nwrite = [\".\"]\n");
    place.work.write("f", "one\n");
    place.script(&[
        r#"{"tool_calls":[{"name":"filesystem","input":{"operation":"write_file","path":"f","content":"two\n","mode":"overwrite"}}]}"#,
        r#"{"content":"done"}"#,
    ]);
    place
}

/// A place whose model runs `touch`-like commands that the policy asks about.
fn asks(level: &str, calls: &[Value]) -> ToolLoop {
    let place = ToolLoop::new();
    let rule = "[[exec.rule]]\ncommand = \"tee\"\ndecision = \"confirm\"\nreason = \"it writes\"\n";
    place.policy(&format!("[exec]\nallowed_commands = [\"tee\"]\nargument_rules = \"off\"\nconfirm = \"{level}\"\n{rule}[paths]\nwrite = [\".\"]\n"));
    let calls: Vec<String> = calls
        .iter()
        .map(|argv| json!({"tool_calls": [{"name": "shell", "input": {"argv": argv}}]}).to_string())
        .chain([r#"{"content":"done"}"#.to_owned()])
        .collect();
    place.script(&calls.iter().map(String::as_str).collect::<Vec<_>>());
    place
}

/// A place whose model calls one tool that requires approval and has an effect.
fn deploys(script: &str) -> ToolLoop {
    let place = ToolLoop::new();
    place.tool("deploy", r#","approve":true"#, script);
    place.script(&[r#"{"tool_calls":[{"name":"deploy"}]}"#, r#"{"content":"done"}"#]);
    place
}

/// The events of a run's ledger that are about approvals.
fn life(place: &ToolLoop, run: &str) -> Vec<String> {
    let entries = place.home.records(format!("planes/ho1/runs/{run}.jsonl")).into_iter();
    entries.filter_map(|entry| entry["event"].as_str()?.strip_prefix("approval.").map(str::to_owned)).collect()
}

fn call_of(asked: &Outcome) -> String {
    asked.error()["details"]["call"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn overwrite_requires_approval_of_this_call() {
    let place = overwrites();
    let asked = place.run(&["x"]);
    assert_eq!((asked.status, place.written("f").as_str()), (9, "one\n"), "{asked:?}");
    let approval = asked.error()["details"]["approval"].clone();
    assert!(approval["shown"]["diff"].as_str().unwrap().contains("-one\n+two\n"), "{approval}");
    let (run, call) = (asked.detail("run_id"), call_of(&asked));
    // The displayed difference is stale: the approval is void, and the new difference requires approval.
    place.work.write("f", "three\n");
    let again = place.run(&words_of(&asked.detail("resume")));
    let mut terminal = place.program("cp-exec").args(["approve", &ids[0]]).terminal(100);
    terminal.wait_for("Allow it?");
    terminal.send("y\r");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!((place.run(&["resume", &second.0]).status, place.work.join("made").exists()), (9, false));
    let ran = place.run(&["resume", &first.0]);
    assert_eq!((ran.status, place.work.join("made").exists()), (0, true), "{ran:?}");
    let ran = place.run(&["resume", &second.0, "--approve", &second.1]);
    assert_eq!(ran.status, 0, "{ran:?}");
    // A script has no terminal: its answer is that of the caller.
    let granted = place.home.records(format!("planes/ho1/runs/{}.jsonl", second.0)).into_iter();
    let granted: Vec<Value> = granted.filter(|entry| entry["event"] == "approval.granted").collect();
    let data = &granted[0]["data"];
    assert_eq!((&data["by"], &data["command"], &data["tty"]), (&json!("caller"), &json!("tee made"), &Value::Null));
    assert!(data["uid"].is_u64(), "{data}");
    let audit = place.program("cp-log").arg("audit").run();
    assert_eq!(audit.status, 0, "{audit:?}");
}
