//! Concurrent prompts: the output equals that of sequential prompts.

use std::time::{Duration, Instant};

use cp_testkit::server::Step;
use cp_testkit::{Outcome, Server, server};
use serde_json::{Value, json};

use crate::llm::Llm;

fn rows(count: usize) -> String {
    let row = |n| json!({"messages":[{"role":"user","content":format!("row {n}")}],"row":{"n":n}}).to_string() + "\n";
    (0..count).map(row).collect::<Vec<_>>().concat()
}

/// An answer that takes a while.
fn slow(ms: u64, mut script: Vec<Step>) -> Vec<Step> {
    script.insert(0, Step::Wait(ms));
    script
}

#[test]
fn batch_output_equals_sequential_output() {
    let input = format!("{}{{\"messages\":[]}}\n\n{}no row\n{}", rows(30), rows(3), rows(1));
    let one = Llm::new().feed(&["--backend", "stub", "--rows"], &input);
    let many = Llm::new().feed(&["--backend", "stub", "--rows", "--jobs", "8"], &input);
    let plain = |ran: &Outcome| -> Vec<Value> {
        let mut records = ran.records();
        for record in &mut records {
            if let Some(data) = record.get_mut("data").and_then(Value::as_object_mut) {
                data.remove("receipt");
            }
            record.as_object_mut().unwrap().remove("meta");
        }
        records
    };
    assert_eq!(plain(&one), plain(&many));
    assert_eq!(many.closing()["error"]["details"], json!({"total":36,"succeeded":34,"failed":2,"skipped":0}));
    assert_eq!(many.records()[32]["data"]["index"], 32);
}

#[test]
fn batch_passes_on_other_records_and_errors_in_order() {
    let prompt =
        json!({"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[{"role":"user","content":"x"}]}});
    let stranger = "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"entry\",\"data\":{\"n\":1e2}}";
    let failure = "{\"ok\":false,\"schema_version\":\"1.0\",\"type\":\"error\",\"error\":{\"code\":\"E_SERVER\",\"message\":\"m\",\"details\":{\"index\":2},\"retryable\":true}}";
    let summary =
        "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"summary\",\"data\":{},\"meta\":{\"duration_ms\":0}}";
    let input = format!("{prompt}\n{stranger}\n{failure}\n{prompt}\n{summary}\n");
    let ran = Llm::new().feed(&["--backend", "stub", "--jobs", "4"], &input);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[1..3], [stranger, failure]);
    let messages = ran.records().into_iter().filter(|record| record["type"] == "message");
    let said: Vec<(Value, Value)> =
        messages.map(|record| (record["data"]["index"].clone(), record["data"]["content"].clone())).collect();
    assert_eq!(said, [(json!(0), json!("stub response 1")), (json!(3), json!("stub response 2"))]);
    assert_eq!(ran.closing()["error"]["details"], json!({"total":3,"succeeded":2,"failed":1,"skipped":0}));
}

#[test]
fn batch_with_text_input_sends_one_prompt() {
    let ran = Llm::new().feed(&["--backend", "stub", "--jobs", "4"], "one\ntwo\n");
    assert_eq!(ran.only()["data"]["input"][0]["content"], "one\ntwo");
}

#[test]
fn batch_prints_streamed_answers_whole_and_in_order() {
    let ran = Llm::new().feed(&["--backend", "stub", "--rows", "--jobs", "3", "--stream"], &rows(3));
    let records = ran.success().records();
    for (at, record) in records[..3].iter().enumerate() {
        let said = (&record["type"], &record["data"]["index"], &record["data"]["content"]);
        assert_eq!(said, (&json!("message"), &json!(at), &json!(format!("stub response {}", at + 1))));
    }
}

#[test]
fn batch_text_output_is_lines_in_order() {
    let llm = Llm::new();
    let arguments = ["--backend", "stub", "--rows", "--jobs", "4", "--stream", "--format", "text"];
    let ran = llm.feed(&arguments, &rows(20));
    let lines: Vec<String> = (1..=20).map(|n| format!("stub response {n}")).collect();
    assert_eq!((ran.status, ran.stdout.lines().collect::<Vec<_>>()), (0, lines.iter().map(String::as_str).collect()));
}

#[test]
fn batch_requests_overlap_and_errors_keep_their_index() {
    let good = slow(150, crate::messages::whole("openai", "fine"));
    let bad = slow(150, server::json(400, &json!({"error":{"message":"no"}})));
    let mut script = vec![good.clone(), bad];
    script.extend(vec![good; 30]);
    let server = Server::playing(script);
    let start = Instant::now();
    let ran = Llm::asking("openai", &server).feed(&["-m", "m", "--rows", "--jobs", "16"], &rows(32));
    assert!(start.elapsed() < Duration::from_millis(32 * 150 / 2), "{:?}", start.elapsed());
    let records = ran.records();
    let places: Vec<&Value> = records[..32]
        .iter()
        .map(|r| r.pointer("/data/index").or_else(|| r.pointer("/error/details/index")).unwrap())
        .collect();
    assert_eq!(places, (0..32).map(Value::from).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    assert_eq!(ran.closing()["error"]["details"], json!({"total":32,"succeeded":31,"failed":1,"skipped":0}));
}

#[test]
fn batch_prints_paid_answers_after_budget_exhaustion() {
    // The first answer is slow, so the others are finished when the budget is exhausted.
    let quick = crate::messages::whole("openai", "fine");
    let mut script = vec![slow(300, quick.clone())];
    script.extend(vec![quick; 20]);
    let server = Server::playing(script);
    let arguments = ["-m", "m", "--rows", "--jobs", "4", "--budget-tokens", "35"];
    let ran = Llm::asking("openai", &server).feed(&arguments, &rows(20));
    assert_eq!((ran.status, ran.closing()["error"]["code"].as_str().unwrap()), (9, "E_BUDGET_EXHAUSTED"));
    let messages = ran.records().iter().filter(|r| r["type"] == "message").count();
    assert_eq!(messages, server.requests().len(), "{}", ran.stdout);
    assert_eq!(ran.closing()["error"]["details"]["succeeded"], messages);
}

#[test]
fn batch_without_continue_on_error_prints_answers_in_flight() {
    let good = crate::messages::whole("openai", "fine");
    let bad = slow(100, server::json(400, &json!({"error":{"message":"no"}})));
    let mut script = vec![bad, slow(300, good.clone())];
    script.extend(vec![good; 20]);
    let server = Server::playing(script);
    let arguments = ["-m", "m", "--rows", "--jobs", "2", "--row-failures", "stop"];
    let ran = Llm::asking("openai", &server).feed(&arguments, &rows(20));
    assert_eq!((ran.status, ran.closing()["error"]["code"].as_str().unwrap()), (2, "E_VALIDATION"), "{}", ran.stdout);
    let printed = ran.records().iter().filter(|r| r["type"] == "message").count();
    assert_eq!((printed + 1, ran.closing()["error"]["details"]["failed"].clone()), (server.requests().len(), json!(1)));
    assert!(printed < 19, "{}", ran.stdout);
}
