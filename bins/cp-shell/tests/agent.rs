//! Agents that are programs: descriptions, turns, switching and failures.

use cp_testkit::Outcome;
use serde_json::json;

use crate::tree::Tree;

/// An agent in a few lines of shell, which answers each request.
const ECHO: &str = include_str!("data/agents/echo.sh");

fn talk(place: &Tree, words: &[&str], input: &str) -> Outcome {
    place.command().args(["--interactive", "--no-hub", "--backend", "stub"]).args(words).stdin(input).run()
}

#[test]
fn program_agent_answers_and_both_sides_are_recorded() {
    let place = Tree::empty();
    place.home.executable("agents/echo/run", ECHO);
    place.home.executable("config/agents.json", "{\"echo\":{\"command\":\"agents/echo/run\"}}");
    let ran = talk(&place, &["--agent", "echo"], "hello there\n:agent\n:quit\n");
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("you said it"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("what was it"), "what it thinks is none of its words: {}", ran.stdout);
    assert!(ran.stdout.contains("echo") && ran.stdout.contains("2.1"), "{}", ran.stdout);
    let session = place.entries("session.jsonl");
    let said: Vec<_> =
        session.iter().filter_map(|entry| entry["role"].as_str().zip(entry["content"].as_str())).collect();
    assert_eq!(said, [("user", "hello there"), ("assistant", "you said it")]);
}

#[test]
fn executable_agent_is_switched_fails_and_is_started_again() {
    let place = Tree::empty();
    let path = place.home.executable("echo", ECHO).display().to_string();
    let lines =
        format!(":agent {path}\n:signals\n:pkg\nplease fail\nplease leave\nfirst\n:agent default\n:pkg\nsecond\n");
    let ran = talk(&place, &[], &lines);
    assert_ne!(ran.status, 0, "a turn failed: {ran:?}");
    let said = ["no such capability", "out of ideas", "ended before it answered", "you said it", "stub response"];
    for words in said {
        assert_eq!(ran.stdout.matches(words).count(), 1, "{words}: {}", ran.stdout);
    }
}

#[test]
fn invalid_agent_is_an_error_with_reason() {
    let place = Tree::empty();
    place.home.executable("mute", "#!/bin/sh\nexit 0\n");
    place.home.executable("wrong",
        "#!/bin/sh\nread -r line; echo '{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"describe\",\"data\":{\"name\":\"x\",\"version\":\"1\",\"capabilities\":[\"FLY\"]}}'\n",
    );
    place.home.executable("chat", "#!/bin/sh\nread -r line; echo hello\n");
    for (name, why) in [("mute", "home/mute"), ("wrong", "FLY"), ("chat", "not a record"), ("none", "starting")] {
        let path = place.home.join(name).display().to_string();
        let ran = talk(&place, &["--agent", &path], ":quit\n");
        assert_ne!(ran.status, 0, "{name}: {}", ran.stdout);
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(why), "{name}: {} {}", ran.stdout, ran.stderr);
    }
    place
        .home
        .executable("config/agents.json", json!({"bare": {"command": "python3 x"}, "odd": {"command": 7}}).to_string());
    for name in ["bare", "odd"] {
        let ran = talk(&place, &["--agent", name], ":quit\n");
        assert_eq!(ran.status, 4, "{name}: {} {}", ran.stdout, ran.stderr);
    }
}
