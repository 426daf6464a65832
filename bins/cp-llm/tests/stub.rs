//! The stub with text, records and rows, valid and invalid.

use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::row;

#[test]
fn stub_answers_text_with_closed_message() {
    let llm = Llm::new();
    for ran in [
        llm.run(&["--backend", "stub", "hello"]),
        llm.run(&["--backend", "stub", "--", "hello"]),
        llm.feed(&["--backend", "stub"], "hello\n"),
        llm.feed(&["--backend", "stub", "-"], "hello\n"),
    ] {
        let only = ran.only();
        assert_eq!(
            (ran.status, &only["type"], &only["data"]["content"]),
            (0, &json!("message"), &json!("stub response 1"))
        );
        assert_eq!(only["data"]["input"], json!([{"role":"user","content":"hello"}]));
    }
    assert_eq!(llm.run(&["--backend", "stub", "--format", "text", "hello"]).stdout, "stub response 1\n");
    assert_eq!(llm.run(&["--backend", "stub", "--stream", "--format", "text", "hello"]).stdout, "stub response 1\n");
}

#[test]
fn stub_answers_rows_in_order_and_invalid_row_fails() {
    let input = format!("{}{{\"messages\":[]}}\n{{\"messages\":1}}\n{}", row("a"), row("b"));
    let ran = Llm::new().feed(&["--backend", "stub", "--rows"], &input);
    let records = ran.records();
    assert_eq!((ran.status, &ran.closing()["error"]["code"]), (1, &json!("E_PARTIAL")));
    assert_eq!(records[0]["data"]["index"], 0);
    assert_eq!(
        (&records[1]["error"]["code"], &records[1]["error"]["details"]["index"]),
        (&json!("E_VALIDATION"), &json!(1))
    );
    assert_eq!(records[3]["data"]["content"], "stub response 2");
    assert_eq!(ran.closing()["error"]["details"], json!({"total":4,"succeeded":2,"failed":2,"skipped":0}));
    for (option, status, lines) in [("fail", 1, 5), ("ok", 0, 5), ("stop", 2, 3)] {
        let ran = Llm::new().feed(&["--backend", "stub", "--rows", "--row-failures", option], &input);
        assert_eq!((ran.status, ran.records().len()), (status, lines), "{option}: {}", ran.stdout);
        assert_eq!(ran.closing()["ok"], status == 0, "{option}");
    }
    let old = |option: &[&str]| Llm::new().feed(&[&["--backend", "stub", "--rows"], option].concat(), &input);
    assert_eq!(old(&["--strict-exit"]).status, 1);
    let stopped = old(&["--continue-on-error", "false"]);
    assert_eq!((stopped.status, stopped.records().len()), (2, 3), "{stopped:?}");
    assert_eq!(stopped.closing()["meta"]["notices"], serde_json::Value::Null, "{stopped:?}");
}

#[test]
fn stub_script_plays_text_calls_usage_and_errors() {
    let llm = Llm::new();
    let script = llm.work.join("script.jsonl");
    let lines = [
        json!({"content":"one","usage":{"input_tokens":5,"output_tokens":6}}),
        json!({"tool_calls":[{"name":"f","input":{"x":1}}]}),
        json!({"error":{"code":"E_RATE_LIMITED","message":"slow","details":{"retry_after_ms":99_999_999}}}),
    ];
    std::fs::write(&script, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let ran =
        llm.feed(&["--backend", "stub", "--rows", "--stub-script", script.to_str().unwrap()], &row("x").repeat(4));
    let records = ran.records();
    assert_eq!(
        (&records[0]["data"]["content"], &records[0]["data"]["usage"]["output_tokens"]),
        (&json!("one"), &json!(6))
    );
    assert_eq!(records[1]["data"]["tool_calls"], json!([{"id":"call_2_1","name":"f","input":{"x":1}}]));
    assert_eq!(records[2]["error"]["code"], "E_RATE_LIMITED");
    assert_eq!(records[3]["data"]["content"], "stub response 4");
    let turns = ["user", "assistant", "user", "assistant", "user", "assistant", "user"];
    let turns = turns.map(|role| json!({"role": role, "content": "x"}));
    let ran = llm.feed(&["--backend", "stub", "--rows"], &json!({ "messages": turns }).to_string());
    assert_eq!(ran.of("message")[0]["content"], "stub response 4", "the number of its turn");
    for (lines, words) in [("{}\n{\"contnet\":\"x\"}\n", "line 2"), ("{\"error\":{\"code\":\"E_NOPE\"}}\n", "E_NOPE")] {
        let file = llm.work.write("wrong.jsonl", lines).display().to_string();
        let error = llm.run(&["--backend", "stub", "--stub-script", &file, "hi"]).first_error();
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    let by_variable = llm.set("CP_STUB_SCRIPT", script.to_str().unwrap()).set("CP_BACKEND", "stub").run(&["hi"]);
    assert_eq!(by_variable.only()["data"]["content"], "one");
}

#[test]
fn ledger_has_text_only_inside_run() {
    let llm = Llm::new();
    assert_eq!(llm.run(&["--backend", "stub", "a private matter"]).status, 0);
    let entries = llm.ledger();
    let events: Vec<&str> = entries.iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["ledger.open", "llm.request", "llm.response", "command"]);
    assert!(!Value::from(entries.clone()).to_string().contains("private"), "{entries:?}");
    assert_eq!(entries[1]["data"]["request_hash"], entries[2]["data"]["request_hash"]);
    let run = llm.work.join("run.jsonl");
    let arguments = ["--backend", "stub", "--run", run.to_str().unwrap(), "a private matter"];
    assert_eq!(llm.run(&arguments).status, 0);
    let entries = llm.work.records(&run);
    assert_eq!(entries[1]["content"], json!([{"role":"user","content":"a private matter"}]));
    assert_eq!(entries[2]["content"], "stub response 1");
}

#[test]
fn invalid_command_lines_are_reported() {
    let llm = Llm::new();
    for (arguments, code) in [
        (&["--backend", "stbu", "hi"][..], "E_CONFIG"),
        (&["--backend", "stub", "one", "two"], "E_USAGE"),
        (&["--backend", "stub", "modles"], "E_USAGE"),
        (&["--backend", "stub", "--timeout", "0", "hi"], "E_USAGE"),
        (&["--backend", "stub", "--no-such", "hi"], "E_USAGE"),
        (&["--backend", "stub", "-s", "@/nowhere", "hi"], "E_NOT_FOUND"),
        (&["--backend", "openai", "-m", "m", "hi"], "E_AUTH"),
    ] {
        assert_eq!(llm.run(arguments).first_error()["code"], code, "{arguments:?}");
    }
    let no_key = llm.run(&["--backend", "openai", "-m", "m", "hi"]).first_error();
    assert!(no_key["details"]["hint"].to_string().contains("OPENAI_API_KEY"), "{no_key}");
    let no_model = llm.set("OPENAI_BASE_URL", "http://127.0.0.1:9/v1").run(&["hi"]);
    assert_eq!(no_model.first_error()["code"], "E_CONFIG");
}
