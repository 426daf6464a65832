//! `--context-tokens`: however long a run lasts, what the model is asked with stays small and whole.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::toolloop::{Results, ToolLoop};

/// A place whose model reads a file in each of so many turns, and keeps what it was asked with in `prompts`.
fn place(turns: usize, bytes: usize) -> ToolLoop {
    let place = ToolLoop::new();
    place.work.write("file", "word ".repeat(bytes / 5));
    let call = json!({"name": "filesystem", "input": {"operation": "read_file", "path": "file"}});
    let line = |n: usize| json!({"content": format!("step {n}"), "tool_calls": [call]}).to_string();
    place.script(&(0..turns).map(line).collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>());
    let (llm, script) = (cp_testkit::program("cp-llm"), place.root.join("script"));
    let watch = format!(
        "#!/bin/sh\ntee -a prompts | {} --closed --backend stub --stub-script {}\n",
        llm.display(),
        script.display()
    );
    place.root.executable("watch", watch);
    place
}

fn ask(place: &ToolLoop, more: &[&str]) -> cp_testkit::Outcome {
    let watch = place.root.join("watch").display().to_string();
    place.run(&[&["--llm", &watch, "--allow", "filesystem"], more].concat())
}

/// What the model was asked with, those for a summary left out.
fn prompts(place: &ToolLoop) -> Vec<Value> {
    let records = place.work.records("prompts").into_iter().filter(|record| record["type"] == "prompt");
    records.map(|record| record["data"].clone()).filter(|data| data["tools"].is_array()).collect()
}

fn ids(turn: &Value, kind: &str, member: &str) -> BTreeSet<String> {
    let blocks = turn["content"].as_array().cloned().unwrap_or_default();
    let of_kind = blocks.iter().filter(|block| block["type"] == kind);
    of_kind.map(|block| block[member].as_str().unwrap().to_owned()).collect()
}

/// Checks that a prompt is about so many tokens at most, that the roles take turns, and that every call has its result at once.
#[track_caller]
fn check(prompt: &Value, tokens: usize) {
    let turns = prompt["messages"].as_array().unwrap();
    let size = turns.iter().map(|turn| turn.to_string().len()).sum::<usize>() + prompt["tools"].to_string().len();
    assert!(size / 4 <= tokens, "{} tokens: {prompt}", size / 4);
    assert!(turns[0]["content"].to_string().contains("the question"), "{}", turns[0]);
    for (at, turn) in turns.iter().enumerate() {
        assert_eq!(turn["role"], ["user", "assistant"][at % 2]);
        let (calls, next) = (ids(turn, "tool_use", "id"), turns.get(at + 1).unwrap_or(&Value::Null));
        assert_eq!(calls, ids(next, "tool_result", "tool_use_id"), "{at}: {turn}");
    }
    assert_eq!(turns.len() % 2, 1);
}

#[test]
fn long_conversation_fits_small_context() {
    let place = place(260, 2000);
    let fit = ["--context-tokens", "8000", "--record", "r.jsonl", "--max-iterations", "120", "the question"];
    let stopped = ask(&place, &fit);
    assert_eq!((stopped.status, stopped.detail("budget").as_str()), (9, "iterations"), "{}", stopped.stderr);
    let run = stopped.detail("run_id");
    let ran = place.run(&["resume", &run, "--max-iterations", "200"]);
    assert_eq!((ran.status, &ran.error()["details"]["iterations"]), (9, &json!(200)), "{}", ran.stderr);
    let prompts = prompts(&place);
    assert_eq!(prompts.len(), 200);
    for prompt in &prompts {
        check(prompt, 8000);
    }
    assert!(
        prompts.iter().any(|prompt| prompt.to_string().contains("summarised")),
        "the summary is in the conversation"
    );
    let events = |ran: &cp_testkit::Outcome, member: &str| {
        let compacted = ran.of("item").into_iter().map(|event| event["compacted"][member].clone());
        compacted.filter(|count| count.as_u64().is_some_and(|count| count > 0)).count()
    };
    let summaries = events(&stopped, "turns") + events(&ran, "turns");
    assert!(events(&stopped, "results") > 0 && summaries > 0, "{summaries}");
    let asked = place.work.records("prompts").into_iter().filter(|record| record["type"] == "prompt").count();
    assert_eq!(asked, 200 + summaries);
    // The removed results are stored, and the ledger records the change.
    let ledger = format!("planes/ho1/runs/{run}.jsonl");
    let all = place.work.read("prompts");
    let hash = all.split("keeps them as sha256:").nth(1).unwrap()[..64].to_owned();
    assert!(place.home.read(format!("{ledger}.blobs/{hash}")).contains("word word"));
    let entries = place.home.records(&ledger).into_iter().filter(|entry| entry["event"] == "context_compacted");
    assert!(entries.filter(|entry| entry["content"].is_string()).count() == summaries);
    let path = place.home.join(&ledger).display().to_string();
    let audit = place.program("cp-log").args(["audit", &path]).run();
    assert_eq!(audit.status, 0, "{audit:?}");
    let played = place.run(&["--replay", "r.jsonl"]);
    assert_eq!(played.of("message"), [stopped.of("message"), ran.of("message")].concat());
    assert_eq!(events(&played, "turns"), summaries);
}

#[test]
fn context_limit_too_small_is_an_error() {
    let place = place(12, 2000);
    let ran = ask(&place, &["the question"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(prompts(&place).last().unwrap().to_string().len() > 24_000, "positive control");
    let ran = ask(&place, &["--context-tokens", "20", "the question"]);
    assert_eq!((ran.status, ran.detail("budget").as_str()), (9, "context"), "{ran:?}");
    assert!(ran.detail("resume").contains("--context-tokens "), "{ran:?}");
    let refused = place.run(&["--context-tokens", "9", "--tool-backend", "/bin/cat", "x"]);
    assert_eq!(refused.status, 2, "{refused:?}");
}

#[test]
fn long_result_is_cut_in_small_context() {
    let place = place(3, 60_000);
    let ran = ask(&place, &["--context-tokens", "4000", "the question"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.results().iter().all(|result| result.len() < 5000), "{ran:?}");
    for prompt in prompts(&place) {
        check(&prompt, 4000);
    }
}
