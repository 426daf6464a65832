//! Servers that differ from the provider whose API they have, and proxies: each answer, error and URL is read as it was
//! meant.

use cp_testkit::Server;
use cp_testkit::server::{Step, events, json as json_answer, reply};
use serde_json::{Value, json};

use crate::llm::Llm;

/// The outcome of one prompt, without retries, and the requests.
fn ask(backend: &str, script: Vec<Step>, words: &[&str]) -> (Vec<Value>, i32) {
    let (llm, _server) = Llm::playing(backend, vec![script]);
    let words = [&["-m", "m", "--retries", "0"], words, &["--", "hi"]].concat();
    let ran = llm.run(&words);
    (ran.records(), ran.status)
}

fn stream(lines: &[&str]) -> Vec<Step> {
    let pieces: Vec<String> = lines.iter().map(|line| format!("{line}\n\n")).collect();
    events(&pieces.iter().map(String::as_bytes).collect::<Vec<_>>())
}

/// A stream of Chat Completions with this frame in its middle.
fn around(frame: &str) -> Vec<Step> {
    let text = r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}"#;
    stream(&[
        text,
        frame,
        r#"data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "data: [DONE]",
    ])
}

#[test]
fn comment_frames_are_skipped_and_others_are_quoted() {
    for frame in ["data: :", "data: : keepalive", ": OPENROUTER PROCESSING", "data:", "event: ping\ndata: "] {
        let (records, status) = ask("openai", around(frame), &["--stream"]);
        assert_eq!((status, &records[records.len() - 2]["data"]["content"]), (0, &json!("hi")), "{frame}: {records:?}");
    }
    for frame in ["keepalive", "<p>busy</p>", "{\"id\":"] {
        let (records, status) = ask("openai", around(&format!("data: {frame}")), &["--stream"]);
        let error = &records.iter().find(|record| record["ok"] == false).unwrap()["error"];
        assert_eq!((status, &error["details"]["upstream_message"]), (7, &json!(frame)), "{frame}: {records:?}");
        assert_eq!(error["details"]["partial"], "hi", "{frame}: {records:?}");
    }
}

#[test]
fn refused_stream_options_are_left_out_once() {
    let refusal = |status: u16, what: &str| {
        json_answer(status, &json!({"error": {"message": format!("Extra inputs are not permitted: {what}")}}))
    };
    let detail = json!([{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs"}]);
    for (first, words, requests) in [
        (refusal(400, "stream_options"), &["--stream"][..], 2),
        (json_answer(422, &json!({"detail": detail})), &["--stream"], 2),
        (json_answer(422, &json!({"object": "error", "message": {"detail": detail}})), &["--stream"], 2),
        (refusal(422, "body.stream_options"), &["--stream"], 2),
        (refusal(400, "temperature"), &["--stream"], 1),
        (refusal(500, "stream_options"), &["--stream"], 1),
        (refusal(400, "stream_options"), &[], 1),
    ] {
        for (second, is_good) in [(around(": x"), true), (refusal(400, "stream_options"), false)] {
            let is_answered = requests == 2 && is_good;
            let (llm, server) = Llm::playing("openai", vec![first.clone(), second]);
            let words = [&["-m", "m", "--retries", "0"], words, &["--", "hi"]].concat();
            let ran = llm.run(&words);
            assert_eq!((server.requests().len(), ran.status == 0), (requests, is_answered), "{ran:?}");
            let bodies: Vec<Value> =
                server.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
            assert_eq!(bodies[0].get("stream_options").is_some(), words.contains(&"--stream"));
            assert!(bodies.get(1).is_none_or(|body| body.get("stream_options").is_none() && body["stream"] == true));
        }
    }
}

#[test]
fn words_of_server_are_kept_in_every_form() {
    let json = |value: Value| ("application/json", value.to_string());
    let page = "<!DOCTYPE html><html><head><TITLE id=a>the zebra</TITLE></head><body><b>x</b></body></html>";
    for (at, (kind, body)) in [
        json(json!({"detail": [{"loc": ["body", "model"], "msg": "the zebra"}]})),
        json(json!({"detail": [{"loc": ["body", "the zebra"], "msg": "required"}]})),
        json(json!({"detail": "the zebra"})),
        json(json!({"Message": "the zebra"})),
        json(json!({"title": "the zebra", "detail": "more", "status": 400})),
        json(json!({"title": "Bad", "detail": "the zebra", "status": 400})),
        json(json!({"errors": ["one", {"message": "the zebra"}]})),
        json(json!({"error": {"detail": "the zebra"}})),
        json(json!({"error": {"message": {"text": "the zebra"}}})),
        json(json!({"error": {"message": "failed", "metadata": {"raw": "the zebra"}}})),
        json(json!({"error": "Not Found", "message": "the zebra", "path": "/v1"})),
        json(json!({"object": "error", "message": {"detail": [{"msg": "the zebra"}]}})),
        json(json!([{"error": {"code": 400, "message": "the zebra"}}])),
        json(json!({"says": {"deep": ["the zebra"]}})),
        json(json!("the zebra")),
        ("text/plain", "the zebra".to_owned()),
        ("text/html", page.to_owned()),
        json(json!({})),
        json(json!({"error": {"message": null, "code": ""}})),
    ]
    .into_iter()
    .enumerate()
    {
        for status in [403, 422] {
            let (records, _) = ask("openai", reply(status, kind, "", body.as_bytes()), &[]);
            let error = &records[0]["error"];
            let words = error["details"]["upstream_message"].as_str().unwrap_or_default();
            assert_eq!(words.contains("the zebra"), at < 17, "{body}: {error}");
            assert_eq!(error["message"].as_str().unwrap().contains("the zebra"), at < 17, "{body}: {error}");
            assert!(
                !words.contains('<') && (kind == "text/html") == error.to_string().contains("login page"),
                "{error}"
            );
        }
    }
}

#[test]
fn events_are_recognized_under_any_content_type() {
    let events = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    let whole = json!({"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]});
    let whole = format!("{whole:#}");
    for kind in ["text/event-stream", "Text/Event-Stream", "text/plain", "application/json", "x"] {
        for body in [events, &format!(": hi\n\n{events}data: [DONE]\n\n"), &whole] {
            for words in [&["--stream"][..], &[]] {
                let (records, status) = ask("openai", reply(200, kind, "", body.as_bytes()), words);
                let found = records.iter().find_map(|record| record["data"].get("content"));
                assert_eq!((status, found), (0, Some(&json!("hi"))), "{kind} {body}: {records:?}");
            }
        }
    }
}

#[test]
fn refusal_without_key_names_the_variable() {
    for (key, hint) in [("", "no key was sent: set OPENAI_API_KEY"), ("sk-0123456789", "the key was refused")] {
        let (llm, _server) = Llm::playing("openai", vec![json_answer(401, &json!({"detail": "no"}))]);
        let error = llm.set("OPENAI_API_KEY", key).run(&["-m", "m", "--", "hi"]).failed(4, "E_AUTH");
        assert!(error["details"]["hint"].as_str().unwrap().contains(hint), "{error}");
    }
    let error = Llm::new().run(&["-m", "openai/m", "--", "hi"]).failed(4, "E_AUTH");
    assert!(error["details"]["hint"].as_str().unwrap().contains("`cp-ask keys set openai`"), "{error}");
}

#[test]
fn byte_order_mark_before_answer_is_skipped() {
    let body = json!({"id":"c","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]});
    let bytes = [b"\xEF\xBB\xBF", body.to_string().as_bytes()].concat();
    let (records, status) = ask("openai", reply(200, "application/json", "", &bytes), &[]);
    assert_eq!((status, &records[0]["data"]["content"]), (0, &json!("hi")), "{records:?}");
}

#[test]
fn error_that_repeats_prompt_is_hashed_on_ledger() {
    let prompt = "the patient Ada Lovelace has a fever of 39 degrees";
    for (words, is_kept) in [(&["-s", "be brief"][..], false), (&["--run", "R1"], true)] {
        let server =
            Server::playing(vec![json_answer(400, &json!({"error":{"message":format!("Invalid input: {prompt}")}}))]);
        let llm = Llm::asking("openai", &server);
        let ran = llm.run(&[&["-m", "m"], words, &["--", prompt]].concat());
        // The caller gets the words of the server.
        assert!(ran.first_error()["message"].to_string().contains("Lovelace"), "{ran:?}");
        let ledger = llm.ledger();
        let response = ledger.iter().find(|entry| entry["event"] == "llm.response");
        if let Some(response) = response {
            let text = response.to_string();
            assert_eq!(text.contains("Lovelace"), is_kept, "{text}");
            assert!(is_kept || text.contains("the upstream answered 400: sha256:"), "{text}");
        }
        assert_eq!(response.is_some(), !is_kept, "a run has a ledger of its own");
    }
}

#[test]
fn refused_proxy_password_is_auth_error() {
    for status in [401, 407] {
        let proxy = Server::playing(vec![reply(status, "text/plain", "", b"")]);
        let llm = Llm::new().set("OPENAI_BASE_URL", "https://api.example/v1").set("CP_BACKEND", "openai");
        let error = llm.set("HTTPS_PROXY", &proxy.url()).run(&["-m", "m", "--", "hi"]).first_error();
        assert_eq!((&error["code"], proxy.requests().len()), (&json!("E_AUTH"), 1), "{error}");
    }
}
