//! Rate limits: all requests wait, concurrency is reduced, and errors of all requests end the stream.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cp_testkit::server::{Step, json as json_answer, reply};
use cp_testkit::{Outcome, Server};
use serde_json::json;

use crate::llm::Llm;
use crate::messages::{rows, whole};

/// A server that accepts this number of requests in each window of time, and answers others with this header.
fn limited(most: usize, window: Duration, header: String) -> Server {
    let state = Mutex::new((Instant::now(), 0_usize));
    Server::replying(move |_| {
        let mut state = state.lock().unwrap();
        if state.0.elapsed() >= window {
            *state = (Instant::now(), 0);
        }
        state.1 += 1;
        if state.1 <= most {
            return whole("openai", "fine");
        }
        reply(429, "application/json", &format!("{header}\r\n"), b"{\"error\":{\"message\":\"slow down\"}}")
    })
}

fn storm(server: &Server, count: usize, most: f64) -> Outcome {
    let start = Instant::now();
    let ran = Llm::asking("openai", server).feed(&["-m", "m", "--rows", "--jobs", "16"], &rows(count));
    assert_eq!((ran.status, ran.of("message").len()), (0, count), "{}", ran.closing());
    let took = start.elapsed().as_secs_f64();
    assert!(took < most, "{took} s, {} requests", server.requests().len());
    ran
}

#[test]
fn rate_limited_rows_are_all_answered() {
    let is_long = cp_testkit::is_long();
    let window = Duration::from_millis(if is_long { 1000 } else { 200 });
    let header = if is_long { "Retry-After: 1" } else { "retry-after-ms: 200" };
    let server = limited(20, window, header.to_owned());
    let ran = storm(&server, 300, 15.0 * window.as_secs_f64() * 1.5);
    let refused = server.requests().len() - 300;
    let warnings = ran.stderr.lines().filter(|line| line.contains("all requests wait")).count();
    // Each pause has one warning and at least one rate limit.
    assert!((10..=20).contains(&warnings) && warnings <= refused && refused <= 300, "{warnings} {refused}");
}

#[test]
fn retry_after_without_delay_does_not_fail_rows() {
    for header in
        ["Retry-After: 0", "Retry-After: Mon, 01 Jan 2024 00:00:00 GMT", "Retry-After: -5", "Retry-After: soon"]
    {
        storm(&limited(20, Duration::from_millis(200), header.to_owned()), 100, 60.0);
    }
}

#[test]
fn single_request_server_answers_all_rows() {
    storm(&limited(1, Duration::from_millis(50), "retry-after-ms: 50".to_owned()), 40, 10.0);
}

#[test]
fn overload_with_retry_after_pauses_all_requests() {
    let wish = reply(503, "application/json", "retry-after-ms: 300\r\n", b"{}");
    let (llm, _server) = Llm::playing("openai", vec![wish, whole("openai", "fine")]);
    let start = Instant::now();
    let ran = llm.feed(&["-m", "m", "--rows", "--jobs", "1"], &rows(3));
    assert!(ran.status == 0 && start.elapsed() >= Duration::from_millis(300), "{:?} {}", start.elapsed(), ran.stdout);
    assert!(ran.stderr.contains("all requests wait 0.3 s"), "{}", ran.stderr);
}

#[test]
fn row_fails_after_its_retries() {
    let refusal = reply(429, "application/json", "retry-after-ms: 10\r\n", b"{}");
    let (llm, server) = Llm::playing("openai", vec![refusal]);
    let ran = llm.feed(&["-m", "m", "--rows", "--jobs", "4", "--retries", "1"], &rows(6));
    assert_eq!((ran.status, &ran.closing()["error"]["details"]["failed"]), (7, &json!(6)), "{}", ran.stdout);
    assert!((12..=12 + 7).contains(&server.requests().len()), "{}", server.requests().len());
}

#[test]
fn concurrency_begins_at_jobs() {
    let (llm, _server) = Llm::playing("openai", vec![[vec![Step::Wait(200)], whole("openai", "fine")].concat()]);
    let start = Instant::now();
    let ran = llm.feed(&["-m", "m", "--rows", "--jobs", "32"], &rows(320));
    // Ten rounds of 200 ms.
    assert_eq!(ran.status, 0, "{}", ran.stdout);
    assert!(start.elapsed() < Duration::from_millis(2900), "{:?}", start.elapsed());
}

#[test]
fn shared_errors_end_stream() {
    let wrong = |message: &str| json!({"error":{"message":message}});
    let quota = json!({"error":{"code":"insufficient_quota","message":"pay"}});
    let credit = json!({"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to use it"}});
    let gemini = json!({"error":{"code":400,"status":"INVALID_ARGUMENT","message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}});
    for (backend, status, body, exit, code) in [
        ("openai", 401, &wrong("no such key"), 4, "E_AUTH"),
        ("openai", 402, &wrong("no credit"), 4, "E_FORBIDDEN"),
        ("openai", 429, &quota, 4, "E_FORBIDDEN"),
        ("anthropic", 400, &credit, 4, "E_FORBIDDEN"),
        ("openai", 404, &wrong("no such model"), 3, "E_NOT_FOUND"),
        ("gemini", 400, &gemini, 4, "E_AUTH"),
    ] {
        for (jobs, most) in [("1", 1), ("8", 8)] {
            let (llm, server) = Llm::playing(backend, vec![[vec![Step::Wait(30)], json_answer(status, body)].concat()]);
            let ran = llm.feed(&["-m", "m", "--rows", "--row-failures", "ok", "--jobs", jobs], &rows(20));
            let error = ran.closing()["error"].clone();
            let case = format!("{backend} {status} {jobs}: {}", ran.stdout);
            assert_eq!((ran.status, error["code"].as_str().unwrap()), (exit, code), "{case}");
            assert!(server.requests().len() <= most, "{case}: {}", server.requests().len());
            assert_eq!(error["details"]["status"], status, "{case}");
            // A request with another model or to another address may succeed.
            let names_both = ["no such model", "model m at", "/v1/chat/completions"]
                .iter()
                .all(|part| error["message"].as_str().unwrap().contains(part));
            assert_eq!(names_both, status == 404, "{case}");
            assert_eq!(error["details"]["model"] == "m", status == 404, "{case}");
            assert_eq!(error["details"]["hint"].to_string().contains("cp-ask models"), status == 404, "{case}");
        }
    }
    // An invalid request and a model that the row names are errors of the row.
    let server = Server::playing(vec![json_answer(400, &wrong("no"))]);
    Llm::asking("openai", &server).feed(&["-m", "m", "--rows"], &rows(3));
    assert_eq!(server.requests().len(), 3);
    let server = Server::playing(vec![json_answer(404, &wrong("no"))]);
    let named = rows(3).replace("{\"messages\"", "{\"model\":\"other\",\"messages\"");
    Llm::asking("openai", &server).feed(&["--rows"], &named);
    assert_eq!(server.requests().len(), 3);
}
