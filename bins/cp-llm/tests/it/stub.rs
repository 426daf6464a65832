//! The stub and the stream around it: text, records and rows, alone and in a row, good and bad.

use serde_json::{Value, json};

use crate::server::Program;

fn row(text: &str) -> String {
    format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}\n")
}

#[test]
fn text_comes_back_as_one_closed_message() {
    let program = Program::new();
    for ran in [
        program.run(&["--backend", "stub", "hello"]),
        program.run(&["--backend", "stub", "--", "hello"]),
        program.run_with(&["--backend", "stub"], "hello\n"),
        program.run_with(&["--backend", "stub", "-"], "hello\n"),
    ] {
        let only = ran.only();
        assert_eq!(
            (ran.status, &only["type"], &only["data"]["content"]),
            (0, &json!("message"), &json!("stub response 1"))
        );
        assert_eq!(only["data"]["input"], json!([{"role":"user","content":"hello"}]));
    }
    assert_eq!(program.run(&["--backend", "stub", "--format", "text", "hello"]).stdout, "stub response 1\n");
    assert_eq!(
        program.run(&["--backend", "stub", "--stream", "--format", "text", "hello"]).stdout,
        "stub response 1\n"
    );
}

#[test]
fn rows_are_answered_in_order_and_a_bad_one_fails_alone() {
    let input = format!("{}{{\"messages\":[]}}\n{{\"messages\":1}}\n{}", row("a"), row("b"));
    let ran = Program::new().run_with(&["--backend", "stub", "--rows"], &input);
    let records = ran.records();
    assert_eq!(ran.status, 0);
    assert_eq!(records[0]["data"]["index"], 0);
    assert_eq!(
        (&records[1]["error"]["code"], &records[1]["error"]["details"]["index"]),
        (&json!("E_VALIDATION"), &json!(1))
    );
    assert_eq!(records[3]["data"]["content"], "stub response 2");
    assert_eq!(ran.last()["data"], json!({"total":4,"succeeded":2,"failed":2,"skipped":0}));
    assert_eq!(Program::new().run_with(&["--backend", "stub", "--rows", "--strict-exit"], &input).status, 1);
}

#[test]
fn a_script_plays_text_calls_usage_and_errors() {
    let program = Program::new();
    let script = program.home.path().join("script.jsonl");
    let lines = [
        json!({"content":"one","usage":{"input_tokens":5,"output_tokens":6}}),
        json!({"tool_calls":[{"name":"f","input":{"x":1}}]}),
        json!({"error":{"code":"E_RATE_LIMITED","message":"slow","retry_after_ms":99_999_999}}),
    ];
    std::fs::write(&script, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let ran = program
        .run_with(&["--backend", "stub", "--rows", "--stub-script", script.to_str().unwrap()], &row("x").repeat(4));
    let records = ran.records();
    assert_eq!(
        (&records[0]["data"]["content"], &records[0]["data"]["usage"]["output_tokens"]),
        (&json!("one"), &json!(6))
    );
    assert_eq!(records[1]["data"]["tool_calls"], json!([{"id":"call_2_1","name":"f","input":{"x":1}}]));
    assert_eq!(records[2]["error"]["code"], "E_RATE_LIMITED");
    assert_eq!(records[3]["data"]["content"], "stub response 4");
    let by_variable = program.set("CP_STUB_SCRIPT", script.to_str().unwrap()).set("CP_BACKEND", "stub").run(&["hi"]);
    assert_eq!(by_variable.only()["data"]["content"], "one");
}

#[test]
fn failures_from_upstream_travel_and_strangers_pass() {
    let program = Program::new();
    let failure = "{\"ok\":false,\"schema_version\":\"1.0\",\"type\":\"error\",\"error\":{\"code\":\"E_NOT_FOUND\",\"message\":\"m\",\"details\":{},\"retryable\":false},\"meta\":{\"duration_ms\":0}}\n";
    let ran = program.run_with(&["--backend", "stub"], failure);
    assert_eq!((ran.status, ran.stdout.as_str()), (3, failure));
    let stranger = "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"entry\",\"data\":{\"n\":1e2}}\n";
    let ran = program.run_with(&["--backend", "stub"], stranger);
    assert_eq!((ran.status, ran.last()["error"]["code"].as_str().unwrap()), (2, "E_VALIDATION"));
    assert!(ran.stdout.starts_with(stranger));
}

#[test]
fn what_was_said_is_on_the_ledger_only_inside_a_named_run() {
    let program = Program::new();
    assert_eq!(program.run(&["--backend", "stub", "a private matter"]).status, 0);
    let entries = program.ledger();
    let events: Vec<&str> = entries.iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["ledger.open", "llm.request", "llm.response", "command"]);
    assert!(!Value::from(entries.clone()).to_string().contains("private"), "{entries:?}");
    assert_eq!(entries[1]["data"]["request_hash"], entries[2]["data"]["request_hash"]);
    let run = program.home.path().join("run.jsonl");
    let arguments = ["--backend", "stub", "--run", run.to_str().unwrap(), "a private matter"];
    assert_eq!(program.run(&arguments).status, 0);
    let entries = crate::server::lines_of(&run);
    assert_eq!(entries[1]["content"], json!([{"role":"user","content":"a private matter"}]));
    assert_eq!(entries[2]["content"], "stub response 1");
}

#[test]
fn slips_on_the_command_line_are_told() {
    let program = Program::new();
    for (arguments, code) in [
        (&["--backend", "stbu", "hi"][..], "E_CONFIG"),
        (&["--backend", "stub", "one", "two"], "E_USAGE"),
        (&["--backend", "stub", "modles"], "E_USAGE"),
        (&["--backend", "stub", "--timeout", "0", "hi"], "E_USAGE"),
        (&["--backend", "stub", "--no-such", "hi"], "E_USAGE"),
        (&["--backend", "stub", "-s", "@/nowhere", "hi"], "E_NOT_FOUND"),
        (&["--backend", "openai", "hi"], "E_AUTH"),
    ] {
        assert_eq!(program.run(arguments).error()["code"], code, "{arguments:?}");
    }
    let no_model = program.set("OPENAI_BASE_URL", "http://127.0.0.1:9/v1").run(&["hi"]);
    assert_eq!(no_model.error()["code"], "E_CONFIG");
}
