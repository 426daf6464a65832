//! cp-toolloop among the others: what comes from cp-compose, and what goes to cp-session and cp-log.

use cp_testkit::{Place, repository};
use serde_json::{Value, json};

/// A tool of three lines of shell.
pub(crate) fn tool(place: &Place, name: &str, body: &str) {
    let describe = json!({"name": name, "description": "A tool.", "parameters": {"type": "object"}});
    let script = format!("#!/bin/sh\nif [ \"$1\" = --describe ]; then echo '{describe}'; exit; fi\n{body}\n");
    place.work.executable(format!("tools/{name}"), script);
}

pub(crate) fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).map(|line| &line["data"]).collect()
}

#[test]
fn the_example_tools_do_what_they_say() {
    cp_testkit::needs!("python3");
    let place = Place::new();
    place.work.write("a.log", "one\nERROR two\nERROR three\n");
    let calls = json!({"tool_calls": [
        {"name": "count_lines", "input": {"path": "a.log", "containing": "ERROR"}},
        {"name": "first_line", "input": {"path": "a.log", "containing": "ERROR"}},
        {"name": "word_count", "input": {"text": "a b\nc"}},
        {"name": "disk_usage", "input": {}},
        {"name": "count_lines", "input": {"path": "absent.log"}},
        {"name": "count_lines", "input": {"file": "a.log"}},
    ]});
    place.work.write("script", format!("{calls}\n"));
    let tools = repository().join("scripts/tools");
    let ran = place.sh(&format!("cp-toolloop --tools {} --backend stub --stub-script script x", tools.display()));
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines = ran.records();
    let results = of(&lines, "tool_result");
    let content: Vec<&str> = results.iter().map(|result| result["content"].as_str().unwrap().trim()).collect();
    assert_eq!((content[0], content[1]), ("2", "ERROR two"));
    assert_eq!(content[2], r#"{"lines": 2, "words": 3, "characters": 5}"#);
    assert!(content[3].contains('%'), "{}", content[3]);
    let failed: Vec<bool> = results.iter().map(|result| result["is_error"] == true).collect();
    assert_eq!(failed, [false, false, false, false, true, true], "{content:?}");
}

#[test]
fn a_signal_in_the_middle_of_a_pipe_leaves_every_line_whole_and_nothing_behind() {
    let place = Place::new();
    tool(&place, "slow", "echo $$ >pid; sleep 31.4159");
    place.work.write("script", "{\"tool_calls\":[{\"name\":\"slow\"}]}\n");
    let ran = place.sh("cp-toolloop --tools tools --backend stub --stub-script script x >out & \
         until [ -s pid ]; do sleep 0.05; done; kill -INT $!; wait $!; echo $?; tail -n 1 out | jq -r .error.code; \
         cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 31[.]4159'; true");
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), ["130", "E_INTERRUPTED", "0"], "{ran:?}");
    let out = place.work.read("out");
    assert!(out.ends_with('\n') && out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{out}");
}
