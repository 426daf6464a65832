//! How answers end: exit status 0 is a whole answer, in every API, whole, streamed and in a batch, as JSON and as text.

use std::collections::BTreeMap;

use cp_testkit::server::json as json_answer;
use cp_testkit::{Conduct, Outcome};
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages::{body, ended_stream, played};

/// The ends of each API, and what they mean for the caller. At a limit an answer is a success only with the caller's
/// own limit.
fn matrix() -> Vec<(String, String, String)> {
    let all: BTreeMap<String, BTreeMap<String, Vec<String>>> =
        serde_json::from_str(include_str!("data/ends.json")).unwrap();
    let ends = all.into_iter().flat_map(|(api, meanings)| {
        meanings.into_iter().flat_map(move |(meaning, ends)| {
            let api = api.clone();
            ends.into_iter().map(move |end| (api.clone(), end, meaning.clone()))
        })
    });
    ends.collect()
}

/// The exit status and the code of an end.
fn expected(meaning: &str, has_own_limit: bool) -> (i32, &'static str) {
    match meaning {
        "whole" => (0, ""),
        "limit" if has_own_limit => (0, ""),
        "limit" | "window" => (1, "E_PARTIAL"),
        "refused" => (4, "E_FORBIDDEN"),
        _ => (7, "E_SERVER"),
    }
}

#[test]
fn each_end_has_its_status_in_each_api_and_format() {
    for ((api, end, meaning), number) in matrix().iter().flat_map(|end| (0..8).map(move |number| (end, number))) {
        let (streams, has_own_limit) = (number & 1 != 0, number & 2 != 0);
        let format = if number & 4 == 0 { "json" } else { "text" };
        let what = format!("{api} {end} {streams} {has_own_limit} {format}");
        let script =
            if streams { played(&ended_stream(api, "half", end)) } else { json_answer(200, &body(api, "half", end)) };
        let (llm, server) = Llm::playing(api, vec![script]);
        let mut words = vec!["-m", "m", "--format", format];
        words.extend(streams.then_some("--stream"));
        words.extend(has_own_limit.then_some("--max-tokens=5"));
        words.extend(["--", "hi"]);
        let ran = llm.run(&words);
        let (status, code) = expected(meaning, has_own_limit);
        assert_eq!((ran.status, server.requests().len()), (status, 1), "{what}: {ran:?}");
        let warns = meaning == "limit" && has_own_limit;
        assert_eq!(ran.stderr.contains("cut at the limit"), warns, "{what}: {ran:?}");
        if format == "text" {
            let printed = streams || status <= 1;
            assert_eq!(ran.stdout, if printed { "half\n" } else { "" }, "{what}: {ran:?}");
        } else if status != 0 {
            check_error(&ran, code, &what);
            assert_eq!(ran.first_error()["details"]["origin"], "upstream", "{what}");
        }
    }
}

fn check_error(ran: &Outcome, code: &str, what: &str) {
    let error = ran.first_error();
    assert_eq!((&error["code"], &error["details"]["partial"]), (&json!(code), &json!("half")), "{what}");
}

#[test]
fn tool_call_without_stated_end_is_failure() {
    for (api, end, list, call) in [
        (
            "openai",
            "stop",
            "/choices/0/message/tool_calls",
            json!({"id": "c", "function": {"name": "f", "arguments": "{}"}}),
        ),
        ("anthropic", "tool_use", "/content", json!({"type": "tool_use", "id": "c", "name": "f", "input": {}})),
        ("gemini", "STOP", "/candidates/0/content/parts", json!({"functionCall": {"name": "f", "args": {}}})),
    ] {
        for (end, status) in [(end, 0), ("", 7)] {
            let mut whole = body(api, "half", end);
            let (object, member) = list.rsplit_once('/').unwrap();
            match &mut whole.pointer_mut(object).unwrap()[member] {
                Value::Array(parts) => parts.push(call.clone()),
                none => *none = json!([call]),
            }
            let (llm, _server) = Llm::playing(api, vec![json_answer(200, &whole)]);
            let ran = llm.run(&["-m", "m", "--", "hi"]);
            assert_eq!(ran.status, status, "{api} `{end}`: {ran:?}");
            if status == 0 {
                assert_eq!(ran.of("message")[0]["stop_reason"], "tool_use", "{api}: {ran:?}");
            } else {
                check_error(&ran, "E_SERVER", api);
            }
        }
    }
}

#[test]
fn each_end_has_its_status_in_batch() {
    let cases =
        matrix().into_iter().filter(|(api, ..)| api != "gemini").flat_map(|end| [(end.clone(), false), (end, true)]);
    for ((api, end, meaning), has_own_limit) in cases {
        let (llm, _provider) =
            Llm::batching(&api, Conduct { answer: Some(body(&api, "half", &end)), ..Conduct::default() });
        let row = json!({"messages": [{"role": "user", "content": "hi"}]}).to_string();
        let mut words = vec!["batch", "submit", "-m", "m", "--rows"];
        words.extend(has_own_limit.then_some("--max-tokens=5"));
        let submitted = llm.feed(&words, &(row + "\n"));
        let id = submitted.of("item")[0]["job_id"].as_str().unwrap().to_owned();
        let fetched = llm.run(&["batch", "result", &id]);
        let (status, code) = expected(&meaning, has_own_limit);
        assert_eq!(fetched.status, status, "{api} {end}: {fetched:?}");
        if status != 0 {
            check_error(&fetched, code, &format!("{api} {end}"));
        }
    }
}

#[test]
fn failure_after_tokens_is_not_paid_twice_and_empty_error_is_none() {
    let failed = |tokens: u64| {
        json!({"id": "r", "status": "failed", "output": [], "error": {"code": "server_error", "message": "m"},
            "usage": {"input_tokens": tokens, "output_tokens": 0}})
    };
    let chat = |error: Value| {
        let mut whole = body("openai", "fine", "stop");
        whole["error"] = error;
        whole
    };
    let start = |tokens: u64| json!({"type": "message_start", "message": {"usage": {"input_tokens": tokens}}});
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let event = |tokens: u64| json!({"type": "response.failed", "response": failed(tokens)});
    for (api, script, status, requests) in [
        ("openai-responses", json_answer(200, &failed(3)), 7, 1),
        ("openai-responses", json_answer(200, &failed(0)), 7, 2),
        ("openai-responses", played(&[event(3)]), 7, 1),
        ("openai-responses", played(&[event(0)]), 7, 2),
        ("anthropic", played(&[start(3), overloaded.clone()]), 7, 1),
        ("anthropic", played(&[start(0), overloaded]), 7, 2),
        ("openai", json_answer(200, &chat(json!({"message": "m"}))), 7, 1),
        ("openai", json_answer(200, &chat(json!({}))), 0, 1),
        ("openai", json_answer(200, &chat(json!(""))), 0, 1),
        ("openai", json_answer(200, &chat(json!(false))), 0, 1),
        ("openai", json_answer(200, &chat(json!({"message": null}))), 0, 1),
    ] {
        let (llm, server) = Llm::playing(api, vec![script.clone(), script]);
        let ran = llm.run(&["-m", "m", "--retries", "1", "--retry-max-wait", "0.01", "--", "hi"]);
        assert_eq!((ran.status, server.requests().len()), (status, requests), "{api}: {ran:?}");
    }
}

#[test]
fn error_inside_choice_is_failure_and_not_paid_twice() {
    for (streams, tokens, requests) in [(false, 3, 1), (true, 3, 1), (false, 0, 2)] {
        let mut whole = body("openai", "Par", "error");
        whole["choices"][0]["error"] = json!({"code": 502, "message": "Provider returned error"});
        whole["usage"] = json!({"prompt_tokens": tokens, "completion_tokens": tokens});
        let mut piece = whole.clone();
        piece["choices"][0]["delta"] = piece["choices"][0]["message"].take();
        let script = if streams { played(&[piece]) } else { json_answer(200, &whole) };
        let (llm, server) = Llm::playing("openai", vec![script.clone(), script]);
        let mut words = vec!["-m", "m", "--retries", "1"];
        words.extend(streams.then_some("--stream"));
        words.extend(["--", "hi"]);
        let ran = llm.run(&words);
        let error = ran.first_error();
        assert_eq!((ran.status, &error["details"]["partial"]), (7, &json!("Par")), "{ran:?}");
        assert_eq!(server.requests().len(), requests, "{streams} {tokens}");
    }
}

#[test]
fn count_that_a_gateway_repeats_as_zero_is_kept() {
    let mut events = ended_stream("anthropic", "fine", "end_turn");
    for event in &mut events {
        match event["type"].as_str() {
            Some("message_start") => event["message"]["usage"] = json!({"input_tokens": 42, "output_tokens": 0}),
            Some("message_delta") => event["usage"] = json!({"input_tokens": 0, "output_tokens": 7}),
            _ => {}
        }
    }
    let (llm, _server) = Llm::playing("anthropic", vec![played(&events)]);
    let ran = llm.run(&["-m", "m", "--stream", "--", "hi"]);
    let usage = &ran.of("message")[0]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(42), &json!(7)), "{ran:?}");
}
