//! Programs as backends: an executable that exchanges records, and a fake `llm`.

use std::path::PathBuf;

use cp_testkit::repository;
use serde_json::{Value, json};

use crate::llm::Llm;

fn executable(llm: &Llm, name: &str, script: &str) -> PathBuf {
    llm.work.executable(name, format!("#!/bin/sh\n{script}"))
}

const ECHO: &str = r#"
while read -r line; do
  n=$((n+1))
  echo '{"ok":true,"schema_version":"1.0","type":"delta","data":{"text":"He"}}'
  printf '{"ok":true,"schema_version":"1.0","type":"message","data":{"id":"e%s","role":"assistant","content":"Hello %s","tool_calls":[{"id":"t","name":"f","input":{"n":123456789012345678901234567890}}],"model":"echo-1","backend":"x","stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}}\n' $n $n
done
"#;

#[test]
fn program_is_started_once() {
    let llm = Llm::new();
    let echo = executable(&llm, "echo-model", ECHO);
    let rows = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n".repeat(3);
    let ran = llm.feed(&["--backend", echo.to_str().unwrap(), "--rows"], &rows);
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    assert!(ran.stdout.contains("{\"n\":123456789012345678901234567890}"), "{}", ran.stdout);
    let said: Vec<_> = ran.records()[..3].iter().map(|r| r["data"]["content"].clone()).collect();
    assert_eq!(said, [json!("Hello 1"), json!("Hello 2"), json!("Hello 3")]);
    let data = ran.records()[0]["data"].clone();
    assert_eq!((&data["model"], &data["backend"]), (&json!("echo-1"), &json!(echo.to_str().unwrap())));
    assert_eq!((&data["input"][0]["content"], &data["usage"]["output_tokens"]), (&json!("x"), &json!(2)));
    let streamed = llm.run(&["--backend", echo.to_str().unwrap(), "--stream", "hi"]);
    assert_eq!(streamed.records()[0]["data"]["text"], "He");
}

#[test]
fn program_failure_exit_and_hang_are_errors() {
    let llm = Llm::new();
    let refuse = r#"read -r line; echo '{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_FORBIDDEN","message":"not you","details":{"x":1},"retryable":false}}'"#;
    for (name, script, exit, code) in [
        ("refuses", refuse, 4, "E_FORBIDDEN"),
        ("dies", "exit 3", 7, "E_NETWORK"),
        ("hangs", "exec sleep 60", 8, "E_TIMEOUT"),
        ("babbles", "read -r line; echo hello", 7, "E_SERVER"),
    ] {
        let file = executable(&llm, name, script);
        let ran = llm.run(&["--backend", file.to_str().unwrap(), "--retries", "0", "--timeout", "0.3", "hi"]);
        assert_eq!((ran.status, ran.first_error()["code"].as_str().unwrap()), (exit, code), "{name}: {}", ran.stdout);
    }
    assert_eq!(llm.run(&["--backend", "./nowhere", "hi"]).status, 3);
}

/// A fake `llm` behind its adaptor.
fn with_llm(script: &str) -> Llm {
    let llm = Llm::new();
    executable(&llm, "llm", script);
    let path = format!("{}:/usr/bin:/bin:{}", llm.work.display(), repository().join("scripts/backends").display());
    llm.set("PATH", &path).set("CP_BACKEND", "llm")
}

#[test]
fn llm_program_gets_text_and_returns_text() {
    let llm = with_llm(r#"printf '%s|' "$@"; cat"#);
    let ran = llm.run(&["-m", "some", "-s", "be 'brief'", "--max-tokens", "5", "hello"]);
    let data = ran.only()["data"].clone();
    assert_eq!(data["content"], "prompt|--no-log|-m|some|-s|be 'brief'|-o|max_tokens|5|hello");
    assert_eq!((&data["backend"], &data["stop_reason"]), (&json!("llm"), &json!("end_turn")));
    let turn = |role: &str, text: &str| json!({"role": role, "content": text});
    let row =
        json!({"session_id": "SES-1", "messages": [turn("user", "a"), turn("assistant", "b"), turn("user", "c")]});
    let ran = llm.feed(&["--rows", "--stream", "--format", "text"], &format!("{row}\n"));
    assert_eq!(ran.stdout, "prompt|--no-log|user: a\n\nassistant: b\n\nuser: c\n");
    executable(&llm, "llm", "echo half; echo 'Error: No key found' >&2; exit 1");
    let error = llm.run(&["hello"]).first_error();
    assert_eq!(
        (&error["code"], error["message"].as_str().unwrap(), &error["details"]["partial"]),
        (&json!("E_COMMAND_FAILED"), "llm failed: Error: No key found", &json!("half"))
    );
    let adaptor = repository().join("scripts/backends").display().to_string();
    let missing = llm.set("PATH", &format!("/usr/bin:/bin:{adaptor}")).run(&["hello"]).first_error();
    assert_eq!(missing["code"], "E_CONFIG", "{missing}");
}

#[test]
fn program_gets_its_blocks_back() {
    let llm = Llm::new();
    let script = r#"while read -r line; do
        printf '%s\n' "$line" | jq -c '{ok: true, schema_version: "1.0", type: "message", data: {id: "1", role: "assistant",
            content: "\([.data.messages[] | (.blocks // [])[].raw.signature] | length) came back", model: "m", backend: "b", stop_reason: "end_turn",
            usage: {}, blocks: [{type: "thinking", thinking: "hm", raw: {signature: "s"}}]}}'
    done"#;
    let program = executable(&llm, "thinker", script);
    let llm = llm.set("PATH", "/usr/bin:/bin");
    let ask = |turns: &Value| {
        let row = format!("{}\n", json!({ "messages": turns }));
        llm.feed(&["--backend", program.to_str().unwrap(), "--rows"], &row).of("message")[0].clone()
    };
    let first = ask(&json!([{"role": "user", "content": "x"}]));
    assert_eq!((&first["content"], &first["blocks"][0]["thinking"]), (&json!("0 came back"), &json!("hm")));
    let turn = json!({"role": "assistant", "content": first["content"], "blocks": first["blocks"]});
    let second = ask(&json!([{"role": "user", "content": "x"}, turn, {"role": "user", "content": "y"}]));
    assert_eq!(second["content"], "1 came back");
}

#[test]
fn llm_program_rejects_tools_and_images() {
    let llm = with_llm("echo hi");
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let tools = json!([{"name": "f", "description": "", "input_schema": {}}]);
    for (row, status) in [
        (json!({"messages": [{"role": "user", "content": [image]}]}), 2),
        (json!({"messages": [{"role": "user", "content": "x"}], "tools": tools}), 2),
        (json!({"messages": [{"role": "user", "content": "x"}]}), 0),
    ] {
        let ran = llm.feed(&["--rows"], &format!("{row}\n"));
        assert_eq!(if ran.status == 1 { 2 } else { ran.status }, status, "{}", ran.stdout);
    }
}
