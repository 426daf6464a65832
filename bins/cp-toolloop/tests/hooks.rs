//! The programs that see each call before it is made and each result before the model does.

use cp_testkit::Outcome;
use serde_json::Value;

use crate::toolloop::{Results, ToolLoop};

/// A place whose model calls `say` with one word.
fn says(word: &str) -> ToolLoop {
    let place = ToolLoop::new();
    place.tool("say", "", "cat >>said; echo >>said; echo heard");
    let call = format!(r#"{{"tool_calls":[{{"name":"say","input":{{"word":"{word}"}}}}]}}"#);
    place.script(&[&call, r#"{"content":"done"}"#]);
    place
}

fn hooked(place: &ToolLoop, option: &str, script: &str) -> Outcome {
    let hook = place.root.executable("hook", format!("#!/bin/sh\n{script}\n")).display().to_string();
    place.with_tools(&[option, &hook, "x"])
}

fn events(place: &ToolLoop, ran: &Outcome) -> Vec<Value> {
    let run = ran.closing()["data"]["run_id"].as_str().unwrap_or_default().to_owned();
    place.home.records(format!("planes/ho1/runs/{run}.jsonl"))
}

#[test]
fn before_tool_program_passes_changes_or_denies() {
    let place = says("one");
    let passed = hooked(&place, "--before-tool", "cat >seen");
    assert_eq!((passed.results()[0].as_str(), place.written("said").as_str()), ("heard\n", "{\"word\":\"one\"}\n"));
    let seen: Value = serde_json::from_str(&place.written("seen")).unwrap();
    assert_eq!((&seen["type"], &seen["data"]["input"]["word"]), (&"tool_call".into(), &"one".into()));

    let place = says("one");
    let changed = hooked(&place, "--before-tool", "jq -c '.data.input.word = \"two\"'");
    assert_eq!(place.written("said"), "{\"word\":\"two\"}\n", "{changed:?}");
    let of = |event: &str| events(&place, &changed).into_iter().find(|entry| entry["event"] == event).unwrap();
    assert_eq!(of("tool_screened")["data"]["outcome"]["changed"]["word"], "two");
    assert_eq!(of("tool_call")["data"]["input"]["word"], "two");

    let place = says("one");
    let denied = hooked(&place, "--before-tool", "echo not now; exit 3");
    assert_eq!((denied.results()[0].as_str(), place.written("said").as_str()), ("Denied: not now", ""));
}

#[test]
fn failing_before_tool_program_denies() {
    let failures = ["kill -9 $$", "exit 127", "echo garbage", "jq -c '.data.name = \"other\"'", "echo '{}'"];
    for script in failures {
        let place = says("one");
        let ran = hooked(&place, "--before-tool", script);
        assert!(ran.results()[0].starts_with("Denied: "), "{script}: {ran:?}");
        assert_eq!((place.written("said").as_str(), ran.status), ("", 0), "{script}");
    }
    // What it makes of the arguments must fit the schema, as what the model wrote must.
    let place = says("one");
    place.tool("say", r#","input_schema":{"type":"object","properties":{"word":{"type":"string"}}}"#, "cat >said");
    let ran = hooked(&place, "--before-tool", "jq -c '.data.input.word = 1'");
    assert!(ran.results()[0].contains("do not fit its schema") && place.written("said").is_empty(), "{ran:?}");
}

#[test]
fn after_tool_program_passes_changes_or_withholds() {
    let place = says("one");
    assert_eq!(hooked(&place, "--after-tool", "true").results(), ["heard\n"]);
    let place = says("one");
    let changed = hooked(&place, "--after-tool", "jq -c '.data.content = \"less\"'");
    assert_eq!(changed.results(), ["less"]);
    assert!(events(&place, &changed).iter().any(|entry| entry["event"] == "tool_sifted"));
    for (script, why) in [("echo private; exit 1", "private"), ("kill -9 $$", "killed"), ("echo x", "did not answer")] {
        let place = says("one");
        let ran = hooked(&place, "--after-tool", script);
        let result = &ran.results()[0];
        assert!(result.starts_with("The result is withheld: ") && result.contains(why), "{script}: {ran:?}");
        assert!(!ran.stdout.contains("heard"), "{script}: {ran:?}");
    }
}

#[test]
fn before_tool_program_gets_each_call_once() {
    let place = says("one");
    place.tool("say", r#","approve":true"#, "cat >said; echo heard");
    let asked = hooked(&place, "--before-tool", "echo seen >>count; jq -c '.data.input.word = \"two\"'");
    assert_eq!(asked.status, 9, "{asked:?}");
    assert_eq!(asked.error()["details"]["call"]["input"]["word"], "two", "the displayed call is the call that runs");
    let (run, id) = (asked.detail("run_id"), asked.error()["details"]["call"]["id"].clone());
    place.run(&["resume", &run, "--approve", id.as_str().unwrap()]).success();
    assert_eq!((place.written("count").as_str(), place.written("said").as_str()), ("seen\n", "{\"word\":\"two\"}"));
}
