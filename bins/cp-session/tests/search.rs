//! `cp-session search`, as a shell user meets it.

use std::os::unix::fs::PermissionsExt as _;

use cp_testkit::Fake;
use serde_json::Value;

use crate::sessions::{Sessions, message};

#[test]
fn turns_are_found_in_every_session_page_by_page() {
    let place = Sessions::new();
    for n in 0..3 {
        let session = place.start();
        place.feed(&["tee", &session], message(&format!("Where is the Harbour {n}?"), "by the sea"));
    }
    let first = place.run(&["search", "harbour", "--limit", "2"]).data();
    assert_eq!((&first["count"], &first["has_more"]), (&2.into(), &true.into()));
    assert!(first["items"][0]["snippet"].as_str().unwrap().contains("Harbour"));
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = place.run(&["search", "harbour", "--limit", "2", "--cursor", cursor]).data();
    assert_eq!((&second["count"], &second["has_more"]), (&1.into(), &false.into()));
    assert_ne!(second["items"][0]["session_id"], first["items"][1]["session_id"]);
}

#[test]
fn one_session_can_be_searched_and_nothing_is_no_failure() {
    let place = Sessions::new();
    let (one, two) = (place.start(), place.start());
    place.run(&["append", "--session", &one, "--", "a tree"]);
    assert_eq!(place.run(&["search", "tree", "--session", &one]).data()["count"], 1);
    assert_eq!(place.run(&["search", "tree", "--session", &two]).data()["count"], 0);
    place.run(&["search", " "]).failed(2, "E_VALIDATION");
    place.run(&["search", "tree", "--cursor", "x"]).failed(2, "E_VALIDATION");
}

#[test]
fn search_folds_case_of_text_and_query_alike() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", "Meet in İstanbul on Friday"]);
    for query in ["İstanbul", "istanbul", "ISTANBUL", "friday"] {
        assert_eq!(place.run(&["search", query]).data()["count"], 1, "{query}");
    }
}

/// What a program of this name is asked, and the vectors that it gives: of a text with a ship (1, 0), else (0, 1).
fn embedder(place: &Sessions, model: &str) -> Fake {
    place.install("cp-session");
    place.home.write("config/cp.toml", format!("embedding_model = \"{model}\"\n"));
    let program = r#"awk '{ v = /boat|ship/ ? "1.0,0.0" : "0.0,1.0"
        printf "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"item\",\"data\":{\"index\":%d,\"embedding\":[%s]}}\n", NR - 1, v }
        END { print "{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"summary\",\"data\":{},\"meta\":{\"duration_ms\":1}}" }' "#;
    Fake::doing(place, "cp-llm", &format!("{program} {}/$n/input", place.root.join("calls/cp-llm").display()))
}

#[test]
fn semantic_search_ranks_turns_and_embeds_each_once() {
    let place = Sessions::new();
    let (one, two) = (place.start(), place.start());
    place.feed(&["tee", &one], message("a tree", "a ship at sea"));
    place.feed(&["tee", &two], message("a ship at sea", "green tea for a boat"));
    assert_eq!(place.run(&["search", "boat"]).data()["items"][0]["score"], Value::Null);
    let asked = embedder(&place, "m");
    let found = place.run(&["search", "boat"]).data();
    let scores: Vec<f64> =
        found["items"].as_array().unwrap().iter().map(|item| item["score"].as_f64().unwrap()).collect();
    assert_eq!(scores, [1.0, 0.5, 0.5, 0.0], "{found}");
    assert!(found["items"][0]["snippet"].as_str().unwrap().contains("boat"));
    assert_eq!(asked.last_call().input.lines().count(), 4, "the query, and each text once");
    assert!(!asked.last_call().arguments.contains("--session"));
    let page = place.run(&["search", "boat", "--limit", "3"]).data();
    let rest = place.run(&["search", "boat", "--limit", "3", "--cursor", page["next_cursor"].as_str().unwrap()]).data();
    assert_eq!((&rest["count"], &rest["items"][0]), (&1.into(), &found["items"][3]));
    assert_eq!(asked.last_call().input, "{\"text\":\"boat\"}\n");
    assert_eq!(place.run(&["search", "boat", "--session", &one]).data()["count"], 2);
    let kept = place.home.join("state/embeddings.jsonl");
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // A line that a crash cut costs its own vector; another model has other vectors.
    let cut = place.home.read("state/embeddings.jsonl").trim_end().to_owned();
    place.home.write("state/embeddings.jsonl", &cut[..cut.len() - 9]);
    place.run(&["search", "boat"]).success();
    place.run(&["search", "boat"]).success();
    assert_eq!(asked.calls().iter().rev().take(2).map(|call| call.input.lines().count()).collect::<Vec<_>>(), [1, 2]);
    let asked = embedder(&place, "other");
    place.run(&["search", "boat"]).success();
    assert_eq!(asked.last_call().input.lines().count(), 4);
    let token =
        place.run(&["delete", &one, "--dangerous", "--dry-run"]).data()["confirm_token"].as_str().unwrap().to_owned();
    place.run(&["delete", &one, "--dangerous", "--confirm", &token]).success();
    assert!(!kept.exists(), "what a vector tells goes with its text");
}

#[test]
fn semantic_search_redacts_query_and_falls_back_to_words() {
    let place = Sessions::new();
    let session = place.start();
    let secret = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ";
    place.run(&["append", "--session", &session, "--", "the key of the tree"]);
    let asked = embedder(&place, "m");
    place.run(&["search", &format!("tree {secret}")]).success();
    assert!(!asked.last_call().input.contains(secret), "{}", asked.last_call().input);
    let line = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_NETWORK","message":"down","details":{},"retryable":true},"meta":{"duration_ms":1}}"#;
    Fake::printing(&place, "cp-llm", line);
    let ran = place.run(&["search", "tree"]).success();
    assert_eq!((&ran.data()["count"], &ran.only()["meta"]["notices"][0]["type"]), (&1.into(), &"not_semantic".into()));
    place.run(&["search", "--semantic", "tree"]).failed(7, "E_NETWORK");
}
