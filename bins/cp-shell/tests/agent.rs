//! Agents that are programs: descriptions, turns, switching and failures.

use cp_testkit::Outcome;
use serde_json::json;

use crate::tree::Tree;

/// An agent in a few lines of shell, which answers each request.
const ECHO: &str = r#"#!/bin/sh
say() { printf '{"ok":true,"schema_version":"1.0","type":"%s","data":%s}\n' "$1" "$2"; }
while IFS= read -r line; do
    case $line in
        *'"type":"describe"'*) say describe '{"name":"echo","version":"2.1","capabilities":["MEMORY","SIGNALS"]}' ;;
        *'"type":"signals"'*) say signals '{"mood":"calm"}' ;;
        *'"type":"state"'*) say state '{"seen":"everything"}' ;;
        *'please fail'*) printf '{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_SERVER","message":"out of ideas","details":{},"retryable":true}}\n' ;;
        *'please leave'*) exit 3 ;;
        *'"type":"process"'*) say delta '{"text":"","thinking":"what was it"}'; say delta '{"text":"you "}'; say delta '{"text":"said it"}'; say message '{"content":"you said it"}' ;;
    esac
done
"#;

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
fn executable_path_is_accepted_as_agent() {
    let place = Tree::empty();
    place.home.executable("echo", ECHO);
    let path = place.home.join("echo").display().to_string();
    let ran = talk(&place, &[], &format!("first\n:agent {path}\nsecond\n:agent default\nthird\n:quit\n"));
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.matches("you said it").count(), 1, "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("stub response").count(), 2, "{}", ran.stdout);
}

#[test]
fn capabilities_decide_available_commands() {
    let place = Tree::empty();
    place.home.executable("echo", ECHO);
    let path = place.home.join("echo").display().to_string();
    let ran = talk(&place, &["--agent", &path], ":signals\n:pkg\n:quit\n");
    assert!(ran.stdout.contains("no such capability"), "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("no such capability").count(), 1, "{}", ran.stdout);
    let ran = talk(&Tree::empty(), &[], ":signals\n:pkg\n:quit\n");
    assert!(!ran.stdout.contains("no such capability"), "{}", ran.stdout);
}

#[test]
fn failed_turn_keeps_session_and_restarts_agent() {
    let place = Tree::empty();
    place.home.executable("echo", ECHO);
    let path = place.home.join("echo").display().to_string();
    let ran = talk(&place, &["--agent", &path], "please fail\nplease leave\nhello\n:quit\n");
    assert_ne!(ran.status, 0, "a turn failed: {} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("out of ideas"), "{}", ran.stdout);
    assert!(ran.stdout.contains("ended before it answered"), "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("you said it").count(), 1, "{}", ran.stdout);
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
