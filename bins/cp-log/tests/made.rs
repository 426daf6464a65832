//! Bundles for these tests: ledgers written line by line, so that their lines can hold anything.

use cp_ledger::format::line::{Hash, compose};
use cp_testkit::Place;
use serde_json::{Value, json};

/// The run that these ledgers are of.
pub(crate) const RUN: &str = "RUN-20261101-00000001";

fn origin(file: &str) -> String {
    format!("cp-ledger/{}", Hash::of(file.as_bytes()).hex().get(..32).unwrap())
}

/// What a line of this ledger is called on every page.
pub(crate) fn id(file: &str, seq: u64) -> String {
    format!("l{}-{seq}", Hash::of(origin(file).as_bytes()).hex().get(..8).unwrap())
}

/// Writes a ledger with these entries, each an object of members in their order.
pub(crate) fn ledger(place: &Place, file: &str, entries: &[Value]) {
    let origin = origin(file);
    let open =
        json!({"event": "ledger.open", "data": {"format": "cp-ledger/1", "origin": origin, "nonce": "0".repeat(32)}});
    let (mut bytes, mut prev) = (Vec::new(), Hash::of_origin(&origin));
    for (seq, entry) in (0..).zip(std::iter::once(&open).chain(entries)) {
        let text = entry.to_string();
        let body = format!(",{}", &text[1..text.len() - 1]);
        let ts = format!("2026-11-01T10:{:02}:{:02}.000000Z", seq / 60 % 60, seq % 60);
        prev = compose(seq, &ts, body.as_bytes(), &prev, &mut bytes).unwrap();
    }
    place.forged();
    place.work.write(file, bytes);
}

/// The entries of a run in which everything happens once.
pub(crate) fn eventful() -> Vec<Value> {
    let run = |event: &str, mut rest: Value| {
        let mut entry = json!({"event": event, "agent": "default", "run": RUN});
        entry.as_object_mut().unwrap().append(rest.as_object_mut().unwrap());
        entry
    };
    let limits = json!({"max_iterations": 4, "tokens": 1000, "usd": null});
    let answer = |attempt: u64, rest: Value| {
        let mut data = json!({"model": "m", "attempt": attempt, "duration_ms": 900,
            "usage": {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.5}});
        data.as_object_mut().unwrap().append(&mut rest.as_object().unwrap().clone());
        run("llm.response", json!({"data": data}))
    };
    let edit = json!({"operation": "edit_file", "path": "a", "old": "one\ntwo", "new": "one\n2"});
    let approval = json!({"action": "run", "level": "agent", "shown": {"argv": ["rm", "a b"], "rule": "confirm"}});
    vec![
        run("run_start", json!({"role": "user", "content": "Mend it", "data": {"base": "/work", "limits": limits}})),
        run("iteration", json!({"turn": 1})),
        answer(1, json!({"code": "E_SERVER", "usage": null})),
        run("llm.request", json!({"data": {"model": "m", "attempt": 2}})),
        answer(2, json!({})),
        run("tool_call", json!({"turn": 1, "data": {"id": "c1", "name": "filesystem", "input": edit}})),
        run(
            "tool_result",
            json!({"turn": 1, "role": "tool", "content": "done",
            "data": {"id": "c1", "name": "filesystem", "is_error": false, "duration_ms": 12}}),
        ),
        run(
            "exec.refused",
            json!({"message": "not allowed", "data": {"asked": ["rm", "-rf", "/"], "code": "E_FORBIDDEN", "rule": "blocked"}}),
        ),
        run("approval.asked", json!({"message": "why", "data": {"id": "APR-1", "approval": approval}})),
        run("approval.granted", json!({"data": {"id": "APR-1", "by": "ada", "how": "terminal", "scope": "once"}})),
        run("exec.intent", json!({"data": {"argv": ["rm", "a b"], "rule": "confirm"}})),
        run("exec.result", json!({"data": {"intent": 11, "return_code": null, "signal": 9, "duration_ms": 5}})),
        run("iteration", json!({"turn": 2})),
        answer(1, json!({"stop_reason": "end_turn"})),
        run("message", json!({"turn": 2, "role": "assistant", "content": "It is mended.", "data": {"model": "m"}})),
        run("run_end", json!({"data": {"status": "completed"}})),
    ]
}
