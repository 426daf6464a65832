//! Concurrent prompts: the output equals that of sequential prompts.

use std::time::{Duration, Instant};

use cp_testkit::server;
use cp_testkit::server::Step;
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{rows, whole};

/// An answer that takes a while.
fn slow(ms: u64, mut script: Vec<Step>) -> Vec<Step> {
    script.insert(0, Step::Wait(ms));
    script
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
    let said = ran.of("message");
    let said = said.iter().map(|data| json!([data["index"], data["content"]]));
    assert!(said.eq([json!([0, "stub response 1"]), json!([3, "stub response 2"])]), "{ran:?}");
    assert_eq!(ran.closing()["error"]["details"], json!({"total":3,"succeeded":2,"failed":1,"skipped":0}));
}

#[test]
fn batch_with_text_input_sends_one_prompt() {
    let ran = Llm::new().feed(&["--backend", "stub", "--jobs", "4"], "one\ntwo\n");
    assert_eq!(ran.only()["data"]["input"][0]["content"], "one\ntwo");
}

#[test]
fn batch_prints_streamed_answers_whole_and_in_order() {
    let run = |format: &str| {
        let arguments = ["--backend", "stub", "--rows", "--jobs", "4", "--stream", "--format", format];
        Llm::new().feed(&arguments, &rows(20)).success()
    };
    let answers: Vec<String> = (1..=20).map(|n| format!("stub response {n}")).collect();
    assert!(run("text").stdout.lines().eq(&answers));
    let ran = run("json");
    assert!(ran.records()[..20].iter().map(|record| &record["data"]["content"]).eq(&answers), "{ran:?}");
}

#[test]
fn batch_requests_overlap_and_errors_keep_their_index() {
    let good = slow(150, whole("openai", "fine"));
    let bad = slow(150, server::json(400, &json!({"error":{"message":"no"}})));
    let (llm, _server) = Llm::playing("openai", vec![good.clone(), bad, good]);
    let start = Instant::now();
    let ran = llm.feed(&["-m", "m", "--rows", "--jobs", "16"], &rows(32));
    assert!(start.elapsed() < Duration::from_millis(32 * 150 / 2), "{:?}", start.elapsed());
    let records = ran.records();
    let index = |record: &Value| record.pointer("/data/index").or(record.pointer("/error/details/index")).cloned();
    assert!(records[..32].iter().map(index).eq((0..32).map(|n| Some(json!(n)))), "{ran:?}");
    assert_eq!(ran.closing()["error"]["details"], json!({"total":32,"succeeded":31,"failed":1,"skipped":0}));
}

#[test]
fn batch_prints_paid_answers_after_budget_exhaustion() {
    // The first answer is slow, so the others are finished when the budget is exhausted.
    let quick = whole("openai", "fine");
    let (llm, server) = Llm::playing("openai", vec![slow(300, quick.clone()), quick]);
    let ran = llm.feed(&["-m", "m", "--rows", "--jobs", "4", "--budget-tokens", "35"], &rows(20));
    assert_eq!((ran.status, ran.closing()["error"]["code"].as_str().unwrap()), (9, "E_BUDGET_EXHAUSTED"));
    let messages = ran.of("message").len();
    assert_eq!(messages, server.requests().len(), "{}", ran.stdout);
    assert_eq!(ran.closing()["error"]["details"]["succeeded"], messages);
}

#[test]
fn batch_without_continue_on_error_prints_answers_in_flight() {
    let good = whole("openai", "fine");
    let bad = slow(100, server::json(400, &json!({"error":{"message":"no"}})));
    let (llm, server) = Llm::playing("openai", vec![bad, slow(300, good.clone()), good]);
    let ran = llm.feed(&["-m", "m", "--rows", "--jobs", "2", "--row-failures", "stop"], &rows(20));
    assert_eq!((ran.status, ran.closing()["error"]["code"].as_str().unwrap()), (2, "E_VALIDATION"), "{}", ran.stdout);
    let printed = ran.of("message").len();
    assert_eq!((printed + 1, ran.closing()["error"]["details"]["failed"].clone()), (server.requests().len(), json!(1)));
    assert!(printed < 19, "{}", ran.stdout);
}
