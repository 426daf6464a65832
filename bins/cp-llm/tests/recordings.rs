//! Recordings: answers are replayed without requests.

use serde_json::json;

use crate::llm::Llm;
use crate::messages::{stream_of, whole};

#[test]
fn replay_returns_recorded_answer_without_server_or_key() {
    for backend in ["anthropic", "openai"] {
        let (llm, server) = Llm::playing(backend, vec![whole(backend, "Hello there")]);
        let tape = llm.work.join("c.jsonl");
        let tape = tape.to_str().unwrap();
        let recorded = llm.run(&["-m", "m", "--record", tape, "hi"]);
        assert_eq!((recorded.status, server.requests().len()), (0, 1));
        let elsewhere = Llm::new();
        let replayed = elsewhere.run(&["-m", "m", "--replay", tape, "hi"]);
        let mut expected = recorded.only()["data"].clone();
        expected["receipt"] = replayed.only()["data"]["receipt"].clone();
        assert_eq!(expected, replayed.only()["data"]);
        let notices = |ran: &cp_testkit::Outcome| ran.closing()["meta"]["notices"][0]["type"].clone();
        assert_eq!((notices(&recorded), notices(&replayed)), (serde_json::Value::Null, "replayed".into()));
        assert_eq!(expected["receipt"]["hash"], elsewhere.ledger()[1]["hash"]);
        let shown = elsewhere.run(&["-m", "m", "--replay", tape, "--stream", "--format", "text", "hi"]);
        assert_eq!(shown.stdout, "Hello there\n");
        assert_eq!(server.requests().len(), 1);
        assert!(!std::fs::read_to_string(tape).unwrap().contains("key-of-the-test"));
        assert_eq!(elsewhere.ledger()[1]["data"]["cached"], true);
    }
}

#[test]
fn replay_miss_is_not_found() {
    let llm = Llm::new();
    let tape = llm.work.join("c.jsonl");
    let tape = tape.to_str().unwrap();
    for text in ["something else entirely", "hello"] {
        assert_eq!(llm.run(&["--backend", "stub", "--record", tape, "-s", "sys", "--max-tokens", "5", text]).status, 0);
    }
    let ran = llm.run(&["--replay", tape, "-s", "sys", "--max-tokens", "6", "hello"]);
    let error = ran.only()["error"].clone();
    assert_eq!((ran.status, error["code"].as_str().unwrap()), (3, "E_NOT_FOUND"));
    assert_eq!(error["details"]["file"], tape);
    assert_eq!(llm.run(&["--replay", "/nowhere.jsonl", "hello"]).status, 3);
    std::fs::write(tape, "").unwrap();
    assert_eq!(llm.run(&["--replay", tape, "hello"]).status, 3);
}

#[test]
fn replay_repeats_order_and_skips_incomplete_line() {
    let llm = Llm::new();
    let tape = llm.work.join("c.jsonl");
    let path = tape.to_str().unwrap();
    let row = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n";
    assert_eq!(llm.feed(&["--backend", "stub", "--rows", "--record", path], &row.repeat(2)).status, 0);
    let text = std::fs::read_to_string(&tape).unwrap();
    std::fs::write(&tape, format!("{text}{{\"key\":\"sha")).unwrap();
    let ran = llm.feed(&["--rows", "--replay", path], &row.repeat(3));
    let said: Vec<_> = ran.records().iter().filter_map(|r| r["data"]["content"].as_str().map(str::to_owned)).collect();
    assert_eq!(said, ["stub response 1", "stub response 2", "stub response 2"], "{}", ran.stdout);
}

#[test]
fn cache_sends_request_once() {
    let (llm, server) = Llm::playing("openai", vec![stream_of("openai", "Hello")]);
    let first = llm.run(&["-m", "m", "--cache=c", "--stream", "hi"]);
    assert_eq!(first.status, 0, "{}", first.stdout);
    let second = llm.run(&["-m", "m", "--cache=c", "hi"]);
    assert_eq!((second.only()["data"]["content"].as_str().unwrap(), server.requests().len()), ("Hello", 1));
    // Cached answers cost nothing.
    let (paid, again) = (first.of("message")[0].clone(), second.only()["data"].clone());
    assert_eq!((&paid["cached"], &paid["usage"]["output_tokens"]), (&serde_json::Value::Null, &json!(3)));
    assert_eq!((&again["cached"], &again["usage"]["output_tokens"]), (&json!(true), &json!(0)));
    assert_eq!(llm.run(&["-m", "other", "--cache=c", "--stream", "hi"]).status, 0);
    assert_eq!(server.requests().len(), 2);
}
