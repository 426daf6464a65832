//! Programs that drive the loop themselves: a prompt, then results in; calls and messages out. What they ask for is
//! dispatched like what a model asks for.

use serde_json::json;

use crate::toolloop::{Results, ToolLoop, words_of};

/// A loop backend that calls `word` twice, the second time without a message, and then prints its input.
const BACKEND: &str = r#"#!/usr/bin/python3
import json, sys
def out(kind, data): print(json.dumps({"ok": True, "schema_version": "1.0", "type": kind, "data": data}), flush=True)
def message(content, calls): return {"id": "m", "role": "assistant", "content": content, "tool_calls": calls, "model": "own", "backend": "own", "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
prompt = json.loads(sys.stdin.readline())["data"]
known = [b["content"] for m in prompt["messages"] if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_result"]
def call(n, name="word"): return {"id": "c%d" % n, "name": name, "input": {"n": n}}
def result(): known.append(json.loads(sys.stdin.readline())["data"]["content"])
if not known:
    out("message", message("first", [call(1), call(2, "nope")]))
    result(); result()
if len(known) < 3:
    out("tool_call", call(3))
    result()
out("message", message(" ".join(word.strip() for word in known), []))
sys.stdin.read()
"#;

fn place() -> (ToolLoop, String) {
    let place = ToolLoop::new();
    place.tool("word", "", "echo word >>words; cat; echo");
    let backend = place.root.executable("backend", BACKEND).display().to_string();
    (place, backend)
}

#[test]
fn backend_calls_run_with_and_without_message() {
    cp_testkit::needs!("python3");
    let (place, backend) = place();
    let ran = place.with_tools(&["--tool-backend", &backend, "x"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.results(), ["{\"n\": 1}\n", "Tool not permitted: nope", "{\"n\": 3}\n"]);
    let messages = ran.of("message");
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[2]["content"], r#"{"n": 1} Tool not permitted: nope {"n": 3}"#);
    assert_eq!(messages[1]["input"][0]["content"][0]["tool_use_id"], "c1");
    assert_eq!(messages[2]["input"][0]["content"][0]["tool_use_id"], "c3");
}

#[test]
fn backend_run_is_resumed_within_limit() {
    cp_testkit::needs!("python3");
    let (place, backend) = place();
    let stopped = place.with_tools(&["--tool-backend", &backend, "--max-iterations", "1", "x"]);
    assert_eq!((stopped.status, &stopped.error()["code"]), (9, &json!("E_BUDGET_EXHAUSTED")), "{stopped:?}");
    let ran = place.run(&words_of(&stopped.detail("resume").replace("iterations 2", "iterations 9")));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.results(), ["{\"n\": 3}\n"]);
    assert_eq!(place.written("words"), "word\nword\n");
}

#[test]
fn backend_refuses_model_options() {
    let (place, backend) = place();
    for option in ["--llm=cp-llm", "--backend=stub", "--stub-script=script"] {
        let refused = place.run(&["--tool-backend", &backend, option, "x"]);
        let name = option.split('=').next().unwrap();
        assert_eq!(
            refused.failed(2, "E_USAGE")["message"],
            format!("{name} cannot be used with --tool-backend {backend}, which asks the model itself")
        );
    }
}

#[test]
fn error_that_ends_the_model_is_reported_once() {
    let place = ToolLoop::new();
    let ran = place.command(&["x"]).env("CP_BACKEND", "").run();
    assert_eq!((ran.status, &ran.error()["code"]), (4, &json!("E_CONFIG")), "{ran:?}");
    assert_eq!(ran.stderr.matches("no backend is configured").count(), 1, "{ran:?}");
}
