//! `cp-log audit --transcript`: a generated session of each host with a generated ledger. Exactly the calls that were changed are named.

use std::collections::BTreeSet;

use cp_ledger::format::line::Hash;
use cp_ledger::{Entry, Ledger, Sync};
use cp_testkit::{Outcome, Place};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The entry of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Right,
    Dropped,
    Doubled,
    OtherInput,
    OtherTool,
    /// Refused, although the call has a successful result.
    Refused,
    /// Refused, and the call has failed: as it should be.
    RefusedAndFailed,
    /// No entry, because the host rejected the call.
    Rejected,
}

use Change::{Doubled, Dropped, OtherInput, OtherTool, Refused, RefusedAndFailed, Rejected, Right};

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => Just(Right),
        1 => Just(Dropped),
        1 => Just(Doubled),
        1 => Just(OtherInput),
        1 => Just(OtherTool),
        1 => Just(Refused),
        1 => Just(RefusedAndFailed),
        1 => Just(Rejected),
    ]
}

fn input(index: usize) -> Value {
    json!({"text": format!("number {index}"), "flag": index.is_multiple_of(2)})
}

fn hash(value: &Value) -> String {
    Hash::of(value.to_string().as_bytes()).to_string()
}

const HOSTS: [&str; 5] = ["claude", "codex", "copilot", "gemini", "opencode"];

/// False if the hook of the host receives no id of a call.
fn has_id(host: &str) -> bool {
    !["copilot", "gemini"].contains(&host)
}

/// The lines about a call.
fn lines_of(host: &str, index: usize, change: Change) -> Vec<Value> {
    let (id, ts) = (format!("call_{index}"), "2026-01-01T00:00:00.000Z");
    let (input, fails, rejected) = (input(index), change == RefusedAndFailed, change == Rejected);
    match host {
        "claude" => {
            let line = |kind: &str, block: Value, result: Value| {
                json!({"type": kind, "sessionId": "s", "cwd": "/work", "timestamp": ts,
                    "message": {"content": [block]}, "toolUseResult": result})
            };
            let call = json!({"type": "tool_use", "id": id, "name": "mcp__x__y", "input": input});
            let (content, result) = match (fails, rejected) {
                (true, _) => ("denied", "Error: denied"),
                (_, true) => ("<tool_use_error>Error: no</tool_use_error>", "Error: no"),
                (false, false) => ("fine", "fine"),
            };
            let end =
                json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": fails || rejected});
            vec![line("assistant", call, Value::Null), line("user", end, result.into())]
        }
        "codex" => {
            let item = |payload: Value| json!({"type": "response_item", "timestamp": ts, "payload": payload});
            let call = json!({"type": "function_call", "call_id": id, "namespace": "mcp__x__", "name": "y", "arguments": input.to_string()});
            let output = match (fails, rejected) {
                (true, _) => "Tool call blocked by PreToolUse hook: no",
                (_, true) => "unsupported call: y",
                (false, false) => "fine",
            };
            vec![item(call), item(json!({"type": "function_call_output", "call_id": id, "output": output}))]
        }
        "copilot" => {
            let line = |kind: &str, data: Value| json!({"type": kind, "timestamp": ts, "data": data});
            let message = if rejected { "Tool 'y' does not exist." } else { "denied" };
            let end = if fails || rejected {
                json!({"toolCallId": id, "success": false, "error": {"message": message}})
            } else {
                json!({"toolCallId": id, "success": true})
            };
            let call = json!({"toolCallId": id, "toolName": "mcp__x__y", "arguments": input});
            vec![line("tool.execution_start", call), line("tool.execution_complete", end)]
        }
        "gemini" => {
            let error = if rejected { "Tool \"y\" not found" } else { "denied" };
            let status = if fails || rejected { "error" } else { "success" };
            let result = json!([{"functionResponse": {"response": {"error": error}}}]);
            vec![json!({"type": "gemini", "toolCalls": [
                {"id": id, "name": "mcp__x__y", "args": input, "status": status, "timestamp": ts, "result": result}
            ]})]
        }
        _ => {
            let tool = if rejected { "invalid" } else { "mcp__x__y" };
            let state =
                json!({"status": if fails { "error" } else { "completed" }, "input": input, "time": {"start": 0}});
            vec![json!({"parts": [{"type": "tool", "callID": id, "tool": tool, "state": state}]})]
        }
    }
}

/// The transcript of calls, some of which the host wrote twice.
fn transcript(host: &str, changes: &[Change], repeated: &BTreeSet<usize>) -> String {
    let mut lines = match host {
        "codex" => vec![json!({"type": "session_meta", "payload": {"id": "s", "cwd": "/work"}})],
        "copilot" => vec![json!({"type": "session.start", "data": {"sessionId": "s"}})],
        "gemini" => vec![json!({"sessionId": "s", "projectHash": "p", "kind": "main"})],
        _ => Vec::new(),
    };
    for (index, change) in changes.iter().enumerate() {
        let both = lines_of(host, index, *change);
        lines.extend(both.iter().cloned());
        if repeated.contains(&index) {
            lines.extend(both);
        }
    }
    if host == "opencode" {
        return serde_json::to_string_pretty(&json!({"info": {"id": "s"}, "messages": lines})).unwrap() + "\n";
    }
    lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

/// The ledger of the hook, with the entries from `turn` on first.
fn record(place: &Place, host: &str, changes: &[Change], turn: usize) {
    let path = place.home.directory("ledger").join("cp-exec.jsonl");
    let mut ledger = Ledger::open(&path, Sync::Batch).unwrap();
    let (before, after) = changes.split_at(turn.min(changes.len()));
    let later = after.iter().enumerate().map(|(index, change)| (index + before.len(), change));
    for (index, change) in later.chain(before.iter().enumerate()) {
        let call = |entry: Entry| {
            let call = if has_id(host) { format!("call_{index}") } else { format!("made-{}", index % 2) };
            entry.with("host", host).with("host_session", "s").with("host_call", &call)
        };
        let decided = |tool: &str, input: &Value| {
            call(Entry::new("host.intent")).with("tool", tool).with("decision", "pass").with("input_hash", &hash(input))
        };
        let right = || decided("mcp__x__y", &input(index));
        let refused = || {
            let asked = json!({"tool": "mcp__x__y", "command": null, "input_hash": hash(&input(index))});
            call(Entry::new("exec.refused")).with("asked", &asked)
        };
        let entries = match change {
            Right => vec![right()],
            Dropped | Rejected => vec![],
            Doubled => vec![right(), right()],
            OtherInput => vec![decided("mcp__x__y", &json!({"text": "another"}))],
            OtherTool => vec![decided("mcp__x__z", &input(index))],
            Refused | RefusedAndFailed => vec![refused()],
        };
        if !entries.is_empty() {
            ledger.append_all(entries).unwrap();
        }
    }
}

fn audit(place: &Place, transcript: &str) -> Outcome {
    let file = place.work.write("session.jsonl", transcript);
    place.program("cp-log").args(["audit", "--transcript"]).arg(file).run()
}

/// The calls with `holds` false, with their states.
fn named(ran: &Outcome) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let calls = ran.of("item").into_iter().filter(|item| item["claim"] == "call" && item["holds"] == false);
    calls.map(|call| (text(&call["call"]), text(&call["state"]))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]
    #[test]
    fn audit_of_changed_session_names_exactly_the_changed_calls(
        host in proptest::sample::select(&HOSTS[..]),
        changes in proptest::collection::vec(change(), 1..30),
        repeated in proptest::collection::btree_set(0_usize..30, 0..6),
        turn in 0_usize..30,
    ) {
        let place = Place::new();
        // At least one call is right, so that there is a ledger.
        let changes = [vec![Right], changes].concat();
        record(&place, host, &changes, turn);
        let ran = audit(&place, &transcript(host, &changes, &repeated));
        let expected: Vec<_> = changes.iter().enumerate().filter_map(|(index, change)| {
            let state = match change {
                Dropped => "unseen",
                OtherInput | OtherTool if !has_id(host) => "unseen",
                OtherInput | OtherTool | Refused => "contradicted",
                Right | Doubled | RefusedAndFailed | Rejected => return None,
            };
            Some((format!("call_{index}"), state.to_owned()))
        }).collect();
        prop_assert_eq!(named(&ran), expected.clone(), "{:?}", ran);
        prop_assert_eq!(ran.status, if expected.is_empty() { 0 } else { 10 }, "{:?}", ran);
        let rejected = changes.iter().filter(|change| **change == Rejected).count();
        let closing = ran.closing();
        let counts = if expected.is_empty() { &closing["data"] } else { &closing["error"]["details"] };
        prop_assert_eq!(&counts["rejected"], &json!(rejected), "{:?}", ran);
    }
}

#[test]
fn audit_of_one_dropped_call_of_hundred_names_its_line() {
    let mut changes = vec![Right; 100];
    changes[41] = Dropped;
    let place = Place::new();
    record(&place, "claude", &changes, 0);
    let ran = audit(&place, &transcript("claude", &changes, &BTreeSet::new()));
    let error = ran.failed(10, "E_UNSEEN");
    assert!(error["message"].as_str().unwrap().contains("line 83, mcp__x__y call_41, unseen"), "{error}");
}

#[test]
fn audit_of_torn_transcript_warns_and_of_damaged_one_names_the_line() {
    let place = Place::new();
    record(&place, "claude", &[Right, Right], 0);
    let whole = transcript("claude", &[Right, Right], &BTreeSet::new());
    let torn = audit(&place, &whole[..whole.len() - 9]);
    assert_eq!(
        (torn.status, torn.closing()["meta"]["notices"][0]["type"].as_str()),
        (0, Some("torn_line")),
        "{torn:?}"
    );
    let damaged = audit(&place, &whole.replacen("\"is_error\":false", "\"is_error\":", 1));
    assert!(damaged.failed(2, "E_VALIDATION")["message"].as_str().unwrap().contains("line 2: "), "{damaged:?}");
    let other = audit(&place, "{\"some\":\"thing\"}\n");
    other.failed(2, "E_VALIDATION");
}

#[test]
fn audit_of_damaged_ledger_fails_with_integrity() {
    let place = Place::new();
    record(&place, "claude", &[Right, Right], 0);
    let path = place.home.join("ledger/cp-exec.jsonl");
    let text = place.home.read("ledger/cp-exec.jsonl").replacen("\"call_1\"", "\"call_9\"", 1);
    std::fs::write(path, text).unwrap();
    audit(&place, &transcript("claude", &[Right, Right], &BTreeSet::new())).failed(1, "E_INTEGRITY");
}
