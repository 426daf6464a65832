//! Errors of the upstream in every API, whole and streamed: the code, the exit status, and the number of attempts.

use cp_testkit::server::{Step, chunk, json as json_answer, reply, stream_head};
use cp_testkit::{Outcome, server};
use serde_json::{Value, json};

use crate::llm::Llm;
use crate::messages;

/// The APIs whose streams are broken off here.
const WIRES: [&str; 2] = ["anthropic", "openai"];
const ALL: [&str; 4] = ["anthropic", "openai", "openai-responses", "gemini"];

/// Runs against a script, with at most two attempts and short timeouts.
fn run(backend: &str, stream: bool, script: Vec<Step>) -> (Outcome, usize) {
    let stalls = script.iter().any(|step| matches!(step, Step::Stall));
    let (total, idle) = if stalls { ("0.3", "0.2") } else { ("30", "20") };
    let (llm, server) = Llm::playing(backend, vec![script]);
    let mut arguments = vec!["--backend", backend, "-m", "m", "--retries", "1", "--retry-max-wait", "0.05"];
    arguments.extend(["--timeout", total, "--idle-timeout", idle]);
    if stream {
        arguments.push("--stream");
    }
    arguments.extend(["--", "hi"]);
    let ran = llm.run(&arguments);
    (ran, server.requests().len())
}

fn check(what: &str, script: &[Step], code: &str, exit: i32, requests: usize) -> Vec<Value> {
    let mut errors = Vec::new();
    for backend in ALL {
        for stream in [false, true] {
            let (ran, asked) = run(backend, stream, script.to_vec());
            let error = ran.first_error();
            let case = format!("{what}, {backend}, stream {stream}: {} {}", ran.stdout, ran.stderr);
            assert_eq!((error["code"].as_str().unwrap(), ran.status, asked), (code, exit, requests), "{case}");
            assert_eq!(ran.closing()["error"]["code"], code, "{case}");
            assert!(!ran.stderr.is_empty(), "{case}");
            errors.push(error);
        }
    }
    errors
}

#[test]
fn status_maps_to_code_and_transient_errors_are_retried() {
    let complaint = json!({"type":"error","error":{"type":"some_error","message":"it says no"}});
    for (status, code, exit, requests) in [
        (400, "E_VALIDATION", 2, 1),
        (401, "E_AUTH", 4, 1),
        (402, "E_FORBIDDEN", 4, 1),
        (403, "E_FORBIDDEN", 4, 1),
        (404, "E_NOT_FOUND", 3, 1),
        (408, "E_TIMEOUT", 8, 2),
        (409, "E_CONFLICT", 6, 1),
        (413, "E_VALIDATION", 2, 1),
        (422, "E_VALIDATION", 2, 1),
        (429, "E_RATE_LIMITED", 7, 2),
        (500, "E_SERVER", 7, 2),
        (501, "E_SERVER", 7, 1),
        (503, "E_SERVER", 7, 2),
        (529, "E_SERVER", 7, 2),
    ] {
        for error in check(&status.to_string(), &json_answer(status, &complaint), code, exit, requests) {
            assert_eq!(error["details"]["status"], status);
            assert_eq!(error["details"]["attempts"], requests);
            assert!(error["message"].as_str().unwrap().contains("it says no"));
            assert!(error["details"]["_untrusted"].as_array().unwrap().contains(&json!("/upstream_message")));
        }
    }
}

#[test]
fn retry_after_is_respected_up_to_limit() {
    let body = br#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let soon = reply(429, "application/json", "retry-after-ms: 20\r\n", body);
    assert_eq!(check("soon", &soon, "E_RATE_LIMITED", 7, 2)[0]["details"]["retry_after_ms"], 20);
    let now = reply(429, "application/json", "Retry-After: 0\r\n", body);
    assert_eq!(check("at once", &now, "E_RATE_LIMITED", 7, 2)[0]["details"]["retry_after_ms"], 0);
    let never = reply(429, "application/json", "", body);
    assert_eq!(check("no wish", &never, "E_RATE_LIMITED", 7, 2)[0]["details"].get("retry_after_ms"), None);
    let later = reply(429, "application/json", "retry-after: 3600\r\n", body);
    let later = &check("later", &later, "E_RATE_LIMITED", 7, 1)[0]["details"];
    assert_eq!(later["retry_after_ms"], 3_600_000);
    assert_eq!(later["hint"], "the provider asks to wait 3600 seconds");
}

#[test]
fn broken_and_stalled_connections_are_errors() {
    check("reset", &[Step::Close], "E_NETWORK", 7, 2);
    check("stalled before the head", &[Step::Stall], "E_TIMEOUT", 8, 2);
    let head = Step::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"id\":".to_vec(),
    );
    for error in check("cut body", &[head.clone(), Step::Close], "E_NETWORK", 7, 2) {
        assert_eq!((&error["details"]["reason"], &error["details"]["partial"]), (&json!("cut"), &json!("{\"id\":")));
    }
    check("stalled body", &[head, Step::Stall], "E_TIMEOUT", 8, 2);
}

#[test]
fn unusable_successful_responses_are_errors() {
    let reason = |what: &str, body: &[u8], kind: &str| {
        check(what, &reply(200, kind, "", body), "E_SERVER", 7, 2)[0]["details"]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason("html", b"<!doctype html><p>log in", "text/html"), "html");
    assert_eq!(reason("html called json", b" <html>", "application/json"), "html");
    assert_eq!(reason("empty", b"", "application/json"), "empty");
    assert_eq!(reason("bad bytes", b"{\"id\":\"\xFF\"}", "application/json"), "invalid_utf8");
    assert_eq!(reason("half", b"{\"id\":", "application/json"), "invalid_json");
    assert_eq!(reason("another object", b"{\"hello\":1}", "application/json"), "invalid_json");
    let gzip = reply(200, "application/json", "content-encoding: gzip\r\n", b"\x1f\x8b\x08\0");
    assert_eq!(check("gzip", &gzip, "E_SERVER", 7, 2)[0]["details"]["reason"], "encoding");
    let redirect = reply(302, "text/html", "location: https://elsewhere.example/\r\n", b"");
    assert_eq!(check("redirect", &redirect, "E_CONFIG", 4, 1)[0]["details"]["location"], "https://elsewhere.example/");
}

#[test]
fn stream_that_breaks_keeps_partial_and_is_not_retried() {
    let end = || Step::Bytes(b"0\r\n\r\n".to_vec());
    let event = |text: &[u8]| vec![chunk(text)];
    let error =
        |kind: &str| chunk(format!("data: {{\"error\":{{\"type\":\"{kind}\",\"message\":\"m\"}}}}\n\n").as_bytes());
    let named =
        b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n";
    for (what, rest, code, exit, reason) in [
        ("cut", vec![Step::Close], "E_NETWORK", 7, "cut"),
        ("ended early", vec![end()], "E_NETWORK", 7, "cut"),
        ("half an event", vec![chunk(b"data: {\"type\":\"content_bl"), end()], "E_NETWORK", 7, "cut"),
        ("stalled", vec![Step::Stall], "E_TIMEOUT", 8, ""),
        ("bad bytes", event(b"data: {\"x\":\"\xFF\"}\n\n"), "E_SERVER", 7, "invalid_utf8"),
        ("half of JSON", event(b"data: {\"x\":\n\n"), "E_SERVER", 7, "invalid_json"),
        ("an error with its name", event(named), "E_SERVER", 7, ""),
        ("a rate limit", vec![error("rate_limit_error")], "E_RATE_LIMITED", 7, ""),
        ("a refusal", vec![error("invalid_request_error")], "E_VALIDATION", 2, ""),
    ] {
        for backend in WIRES {
            let start = vec![stream_head(), chunk(messages::stream_start(backend).as_bytes())];
            let (ran, asked) = run(backend, true, [start, rest.clone()].concat());
            let error = ran.first_error();
            assert_eq!((error["code"].as_str(), ran.status, asked), (Some(code), exit, 1), "{backend} {what}: {ran:?}");
            assert_eq!(error["details"]["partial"], "Hel", "{backend} {what}");
            assert_eq!(error["details"]["reason"].as_str().unwrap_or_default(), reason, "{backend} {what}");
            assert_eq!(ran.records()[0]["data"]["text"], "Hel");
        }
    }
}

#[test]
fn stream_failure_before_text_is_retried() {
    for backend in WIRES {
        let overloaded = b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
        let (llm, server) =
            Llm::playing(backend, vec![server::events(&[overloaded]), messages::stream_of(backend, "Hello")]);
        let ran = llm.run(&["-m", "m", "--stream", "--format", "text", "--retry-max-wait", "0.01", "hi"]);
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "Hello\n"), "{}", ran.stderr);
        assert!(ran.stderr.contains("attempt 1 failed"), "{}", ran.stderr);
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn ledger_has_each_attempt() {
    let (llm, _server) = Llm::playing("openai", vec![json_answer(503, &json!({})), messages::whole("openai", "fine")]);
    assert_eq!(llm.run(&["-m", "m", "--retry-max-wait", "0.01", "hi"]).status, 0);
    let of = |event: &str, member: &str| -> Vec<Value> {
        llm.entries(event).iter().map(|entry| json!([entry["data"]["attempt"], entry["data"][member]])).collect()
    };
    assert_eq!(of("llm.request", "status"), [json!([1, null]), json!([2, null])]);
    assert_eq!(of("llm.response", "status"), [json!([1, 503]), json!([2, 200])]);
}

#[test]
fn refused_connection_and_unknown_host_are_errors() {
    let refused = Llm::new().set("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let ran = refused.run(&["-m", "m", "--retries", "0", "hi"]);
    assert_eq!((ran.status, ran.first_error()["code"].as_str().unwrap().to_owned()), (7, "E_NETWORK".to_owned()));
    for base in ["ftp://x", "http://127.0.0.1:99999/v1"] {
        Llm::new().set("OPENAI_BASE_URL", base).run(&["-m", "m", "hi"]).failed(4, "E_CONFIG");
    }
}
