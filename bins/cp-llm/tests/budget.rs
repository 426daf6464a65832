//! Budgets: the usage that counts, the end of a stream, and the file that processes share, also if one of them is
//! killed.

use std::time::{Duration, Instant};

use cp_testkit::server::{Step, chunk, json as json_answer, stream_head};
use cp_testkit::{Background, Outcome, until};
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{body, rows, stream_start, whole};

/// The content of the budget file `budget`.
fn budget(llm: &Llm) -> Value {
    serde_json::from_str(&llm.work.read("budget")).unwrap()
}

/// Options that share the budget file.
fn sharing<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--rows", "--budget-file", "budget"], more].concat()
}

/// Starts the program with this number of rows.
fn start(llm: &Llm, arguments: &[&str], count: usize) -> Background {
    let mut child = llm.start(&sharing(arguments));
    child.write(rows(count));
    child.close_stdin();
    child
}

/// An answer that used 200 tokens and ended with this reason.
fn answer(reason: &str) -> Vec<Step> {
    let mut whole = body("openai", "half of it", reason);
    whole["usage"] = json!({"prompt_tokens": 150, "completion_tokens": 50});
    json_answer(200, &whole)
}

#[test]
fn invalid_options_create_no_budget_file() {
    let llm = Llm::new();
    for (slip, status) in [
        (&["-o", "model=x"][..], 2),
        (&["--tool-schemas", "missing.json"], 3),
        (&["-s", "@missing.txt"], 3),
        (&["--budget-usd", "nan"], 2),
    ] {
        let given = [&["--backend", "stub", "--budget-tokens", "100"], slip].concat();
        let ran = llm.feed(&sharing(&given), &rows(1));
        assert_eq!(ran.status, status, "{slip:?}: {}", ran.stdout);
        assert!(llm.work.names().is_empty(), "{slip:?}: {:?}", llm.work.names());
    }
}

#[test]
fn killed_process_counts_requests_in_flight() {
    let (llm, server) = Llm::playing("openai", vec![whole("openai", "fine"), vec![Step::Stall]]);
    let limits = ["-m", "m", "--budget-tokens", "10000"];
    let child = start(&llm, &limits, 2);
    until("the second request is under way", || server.requests().len() == 2);
    let reserved = budget(&llm)["reserved"].clone();
    child.kill();
    // An answer uses 10 tokens, so the second is estimated at 10.
    assert_eq!((reserved.as_array().unwrap().len(), &reserved[0]["amount"]["tokens"]), (1, &json!(10)), "{reserved}");
    let stub = llm.feed(&sharing(&["--backend", "stub"]), &rows(1));
    assert_eq!(stub.status, 0, "{}", stub.stdout);
    assert_eq!((&budget(&llm)["spent"]["tokens"], &budget(&llm)["reserved"]), (&json!(10 + 10 + 5), &json!([])));
    assert_eq!(llm.work.names(), ["budget"]);
}

#[test]
fn sixty_four_processes_use_whole_budget() {
    let llm = Llm::new();
    let together = |arguments: &[&str], count: usize| -> Vec<Outcome> {
        let children: Vec<_> = (0..64).map(|_| start(&llm, arguments, count)).collect();
        children.into_iter().map(Background::wait).collect()
    };
    let enough = ["--backend", "stub", "--jobs", "2", "--budget-tokens", "100000"];
    for ran in together(&enough, 6) {
        assert_eq!((ran.status, ran.of("message").len()), (0, 6), "{}", ran.stdout);
    }
    assert_eq!(budget(&llm)["spent"]["tokens"], 64 * 6 * 5);
    // The rest of this limit is enough for 400 answers of 5 tokens.
    let limit = (64 * 6 * 5 + 2000).to_string();
    let ran = together(&["--backend", "stub", "--jobs", "2", "--budget-tokens", &limit], 12);
    let answers: usize = ran.iter().map(|ran| ran.of("message").len()).sum();
    assert_eq!((answers, budget(&llm)["spent"]["tokens"].to_string()), (400, limit.clone()));
    let failed: Vec<_> = ran.iter().filter(|ran| ran.status != 0).map(|ran| ran.closing()["error"].clone()).collect();
    assert!(!failed.is_empty());
    for error in failed {
        assert_eq!(error["code"], "E_BUDGET_EXHAUSTED");
        assert_eq!(error["details"]["spent_tokens"].to_string(), limit, "{error}");
    }
    assert_eq!(llm.work.names(), ["budget"]);
}

#[test]
fn invalid_budget_file_is_rejected_before_sending() {
    let llm = Llm::new();
    for text in [
        "notes of mine\n",
        "{\"limit\":{}}",
        "{\"spent\":1}",
        "{}",
        "[]",
        "{\"usd\":0,\"tokens\":0,\"x\":1}",
        "{\"spent\":{\"usd\":-1,\"tokens\":0}}",
    ] {
        llm.work.write("budget", text);
        let error = llm.feed(&sharing(&["--backend", "stub", "--budget-tokens", "9"]), &rows(2)).failed(4, "E_CONFIG");
        assert!(error["message"].as_str().unwrap().contains("budget: not a budget file"), "{error}");
        assert_eq!(llm.work.read("budget"), text);
    }
    for path in ["/dev/null", "/"] {
        llm.run(&["--backend", "stub", "--budget-tokens", "9", "--budget-file", path, "hi"]).failed(4, "E_CONFIG");
    }
    llm.run(&["--backend", "stub", "--budget-file", "absent", "hi"]).failed(2, "E_USAGE");
    assert_eq!(llm.entries("llm.request"), [] as [Value; 0]);
    llm.work.write("budget", "{\"limit\":{},\"spent\":{\"usd\":0.0,\"tokens\":93},\"reserved\":[]}\n");
    let ran = llm.feed(&sharing(&["--backend", "stub", "--budget-tokens", "100"]), &rows(9));
    assert_eq!((ran.status, ran.of("message").len()), (9, 2), "{}", ran.stdout);
    assert_eq!(budget(&llm)["spent"]["tokens"], 103);
}

#[test]
fn failed_stop_reason_counts_for_budget() {
    let (llm, server) = Llm::playing("openai", vec![answer("length")]);
    let ran = llm.feed(&["-m", "m", "--rows", "--fail-on", "max_tokens", "--budget-tokens", "300"], &rows(6));
    assert_eq!((ran.status, ran.closing()["error"]["code"].as_str().unwrap()), (9, "E_BUDGET_EXHAUSTED"));
    assert_eq!((server.requests().len(), &ran.closing()["error"]["details"]["spent_tokens"]), (2, &json!(400)));
    assert_eq!(ran.first_error()["details"]["usage"]["input_tokens"], 150);
    assert_eq!(llm.entries("llm.response")[0]["data"]["usage"]["output_tokens"], 50);
}

#[test]
fn schema_mismatch_and_cut_stream_count_for_budget() {
    let (llm, server) = Llm::playing("openai", vec![answer("stop")]);
    let schema = llm.work.write("schema", r#"{"type":"object"}"#);
    let limits = ["-m", "m", "--rows", "--budget-tokens", "500", "--schema", schema.to_str().unwrap()];
    let ran = llm.feed(&limits, &rows(6));
    assert_eq!((ran.status, server.requests().len()), (9, 3), "{}", ran.stdout);
    assert_eq!(ran.first_error()["details"]["usage"]["output_tokens"], 100);
    let head = vec![stream_head(), chunk(stream_start("anthropic").as_bytes()), Step::Close];
    let (llm, server) = Llm::playing("anthropic", vec![head]);
    let ran = llm.feed(&["-m", "m", "--rows", "--stream", "--budget-tokens", "20"], &rows(6));
    assert_eq!((ran.status, server.requests().len()), (9, 3), "{}", ran.stdout);
    assert_eq!(ran.first_error()["details"]["usage"]["input_tokens"], 7);
}

#[test]
fn answer_without_usage_ends_stream_with_budget() {
    let mut whole = body("openai", "fine", "stop");
    whole.as_object_mut().unwrap().remove("usage");
    let ask = |arguments: &[&str]| {
        let (llm, server) = Llm::playing("openai", vec![json_answer(200, &whole)]);
        let ran = llm.feed(&[&["-m", "m", "--rows"], arguments].concat(), &rows(5));
        (ran, server.requests().len())
    };
    let (free, asked) = ask(&[]);
    assert_eq!((free.status, asked), (0, 5));
    let (ran, asked) = ask(&["--budget-tokens", "1000"]);
    let error = ran.closing()["error"].clone();
    assert_eq!((ran.status, error["code"].as_str().unwrap(), asked), (4, "E_CONFIG", 1), "{}", ran.stdout);
    assert_eq!(error["details"]["partial"], "fine");
    // Requests in flight are paid for, so their answers are printed.
    let (ran, asked) = ask(&["--budget-tokens", "1000", "--jobs", "4"]);
    assert_eq!((ran.status, ran.of("message").len() + 1), (4, asked), "{}", ran.stdout);
}

#[test]
fn backend_without_usage_is_rejected_with_budget() {
    let llm = Llm::new();
    let answer = r#"{"ok":true,"schema_version":"1.0","type":"message","data":{"id":"","role":"assistant","content":"fine","model":"m","backend":"b","stop_reason":"end_turn","usage":{}}}"#;
    llm.work.executable("mute", format!("#!/bin/sh\nread -r line\necho '{answer}'\n"));
    let ask = |arguments: &[&str]| llm.run(&[&["--backend", "./mute"], arguments, &["hi"]].concat());
    assert_eq!(ask(&[]).status, 0);
    let error = ask(&["--budget-tokens", "5"]).failed(4, "E_CONFIG");
    assert!(error["details"]["hint"].as_str().unwrap().contains("--budget-tokens"), "{error}");
}

#[test]
fn requests_in_flight_reserve_max_tokens() {
    // Each answer uses 10 tokens but may use 100, so the limit admits two at a time.
    let (llm, _server) = Llm::playing("openai", vec![[vec![Step::Wait(100)], whole("openai", "fine")].concat()]);
    let began = Instant::now();
    let arguments = ["-m", "m", "--jobs", "8", "--max-tokens", "100", "--budget-tokens", "210"];
    let ran = llm.feed(&sharing(&arguments), &rows(8));
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!(budget(&llm)["spent"]["tokens"], 80);
}
