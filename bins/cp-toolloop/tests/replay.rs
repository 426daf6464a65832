//! What was recorded can be played again: the same records, without a model, a tool, a process or a network.

use crate::toolloop::{Results, ToolLoop};
use cp_testkit::counterpart;
use serde_json::{Value, json};

/// The lines without what may differ: times, durations and the place of the ledger.
fn timeless(lines: &[Value]) -> Vec<Value> {
    let mut lines = lines.to_vec();
    for line in &mut lines {
        line["meta"] = Value::Null;
        if let Some(data) = line["data"].as_object_mut() {
            data.remove("run_id");
            data.remove("ledger");
        }
    }
    lines
}

#[test]
fn replay_is_identical_and_starts_nothing() {
    let place = ToolLoop::new();
    place.tool("good", "", "echo ran >>ran; echo good");
    place.tool("fails", "", "exit 2");
    place.script(&[
        r#"{"content":"a","tool_calls":[{"name":"good"},{"name":"nope"},{"name":"fails"}]}"#,
        r#"{"tool_calls":[{"name":"fails"}]}"#,
    ]);
    let recording = place.root.join("r.jsonl").display().to_string();
    let ran = place.with_tools(&["--record", &recording, "x"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    std::fs::remove_dir_all(place.root.join("tools")).unwrap();
    std::fs::remove_file(place.root.join("script")).unwrap();
    for source in [&recording, &run] {
        let again = place.run(&["--replay", source]);
        assert_eq!(again.status, 0, "{again:?}");
        assert_eq!(timeless(&again.records()), timeless(&ran.records()));
        let notices = |ran: &cp_testkit::Outcome| ran.closing()["meta"]["notices"][0]["type"].clone();
        assert_eq!((notices(&ran), notices(&again)), (Value::Null, "replayed".into()));
    }
    assert_eq!(place.written("ran"), "ran\n");
    assert_eq!(place.run(&["--replay", &recording, "x"]).status, 0);
    assert_eq!(place.run(&["--replay", &recording, "other"]).status, 2);
    assert_eq!(place.run(&["resume", &run]).status, 6);
}

#[test]
fn stopped_run_is_recorded_so_far() {
    let place = ToolLoop::new();
    place.tool("good", "", "echo good");
    place.script(&[r#"{"tool_calls":[{"name":"good"}]}"#, r#"{"error":{"code":"E_FORBIDDEN","message":"no"}}"#]);
    let stopped = place.with_tools(&["--record", "r.jsonl", "x"]);
    assert_eq!(stopped.status, 4, "{stopped:?}");
    let played = place.run(&["--replay", "r.jsonl"]);
    assert_eq!((played.status, &played.error()["code"]), (3, &json!("E_NOT_FOUND")), "{played:?}");
    assert_eq!((played.of("message"), played.results()), (stopped.of("message"), stopped.results()));
    // When the run is over, all of it is there.
    place.script(&[r#"{"tool_calls":[{"name":"good"}]}"#, r#"{"content":"done"}"#]);
    let run = stopped.detail("run_id");
    assert_eq!(place.run(&["resume", &run]).status, 0);
    assert_eq!(place.run(&["--replay", "r.jsonl"]).of("message").len(), 2);
}

#[test]
fn modified_recording_is_refused_in_any_home() {
    let place = ToolLoop::new();
    place.tool("good", "", "echo good");
    place.script(&[r#"{"tool_calls":[{"name":"good"}]}"#, r#"{"content":"fifty"}"#]);
    assert_eq!(place.with_tools(&["--record", "r.jsonl", "x"]).status, 0);
    let text = place.work.read("r.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().position(|line| line.contains("fifty")).unwrap();
    place.work.write("changed", text.replace("fifty", "sixty"));
    place.work.write("moved", [&lines[..2], &lines[3..4], &lines[2..3], &lines[4..]].concat().join("\n"));
    for home in ["home", "elsewhere"] {
        let home = place.root.join(home).display().to_string();
        assert_eq!(place.run(&["--home", &home, "--replay", "r.jsonl"]).status, 0);
        for (name, line) in [("changed", last + 1), ("moved", 3)] {
            let refused = place.run(&["--home", &home, "--replay", name]);
            let details = &refused.error()["details"];
            assert_eq!((refused.status, &refused.error()["code"]), (1, &json!("E_INTEGRITY")), "{refused:?}");
            assert_eq!(details["line"], json!(line), "{refused:?}");
        }
    }
}

#[test]
fn reasoning_is_replayed_and_never_the_answer() {
    let place = ToolLoop::new();
    let script = r#"#!/bin/sh
        say() { printf '{"ok":true,"schema_version":"1.0","type":"%s","data":%s}\n' "$1" "$2"; }
        while read -r line; do
            say delta '{"text":"","thinking":"well","_untrusted":["/thinking"]}'
            say delta '{"text":"yes","_untrusted":["/text"]}'
            say message '{"id":"1","role":"assistant","content":"yes","model":"m","backend":"b","stop_reason":"end_turn","usage":{}}'
        done
    "#;
    let model = place.root.executable("model", script).display().to_string();
    let ran = place.run(&["--llm", &model, "--record", "r.jsonl", "x"]);
    let deltas = ran.of("delta");
    assert_eq!((&deltas[0]["thinking"], &deltas[1]["text"]), (&json!("well"), &json!("yes")), "{ran:?}");
    assert_eq!(timeless(&place.run(&["--replay", "r.jsonl"]).records()), timeless(&ran.records()));
    assert_eq!(place.run(&["--llm", &model, "--format", "text", "x"]).stdout, "yes\n");
}

/// The ledger has an answer even if the program that gave it claims that cp-llm has recorded it there.
#[test]
fn answer_with_false_receipt_is_recorded() {
    let place = ToolLoop::new();
    for hash in ["$hash", "sha256:0"] {
        let script = format!(
            r#"#!/bin/sh
            cd {home}/planes/*/runs && ledger=$PWD/$(ls -t | grep 'jsonl$' | head -1)
            read -r line && hash=$(head -1 "$ledger" | jq -r .hash)
            receipt='{{"ledger":"'$ledger'","seq":0,"hash":"'{hash}'"}}'
            message='"id":"1","role":"assistant","content":"yes","model":"m","backend":"b","usage":{{}},"receipt":'$receipt',"stop_reason":"end_turn"'
            echo '{{"ok":true,"schema_version":"1.0","type":"message","data":{{'"$message"'}}}}'
            "#,
            home = place.home.display(),
        );
        let model = place.root.executable("model", &script).display().to_string();
        let ran = place.run(&["--llm", &model, "x"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let entries = place.root.read(ran.of("item")[0]["ledger"].as_str().unwrap());
        assert!(entries.contains(r#""event":"message""#) && entries.contains("yes"), "{entries}");
    }
}

#[test]
fn replay_opens_no_socket_and_starts_no_process() {
    let Some(strace) = counterpart("strace") else { return };
    let place = ToolLoop::new();
    place.tool("good", "", "echo good");
    place.script(&[r#"{"tool_calls":[{"name":"good"}]}"#]);
    let recording = place.root.join("r.jsonl").display().to_string();
    // Every socket and every start of a program, of all its processes.
    let traced = |arguments: &[&str]| {
        let trace = place.root.join("trace");
        let options = ["-f", "-qq", "-e", "trace=socket,socketpair,connect,execve", "-o", trace.to_str().unwrap()];
        let ran = place.command(arguments).under(&strace, options).run();
        assert_eq!(ran.status, 0, "{ran:?}");
        place.root.read("trace")
    };
    let tools = place.tools();
    let played = traced(&["--tools", &tools, "--record", &recording, "x"]);
    assert!(played.contains("socketpair(") && played.matches("execve(").count() > 3, "it is seen: {played}");
    let replayed = traced(&["--replay", &recording]);
    let count = |call: &str| replayed.matches(call).count();
    assert_eq!((count("execve("), count("socket("), count("connect(")), (1, 0, 0), "{replayed}");
}

#[test]
fn run_without_recording_cannot_be_replayed() {
    let place = ToolLoop::new();
    let ran = place.run(&["x"]);
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    let replay = place.run(&["--replay", &run]);
    assert_eq!((replay.status, &replay.error()["code"]), (3, &json!("E_NOT_FOUND")), "{replay:?}");
}

#[test]
fn long_result_is_cut_in_bounded_memory_and_stored() {
    for (bytes, stored) in [(300_000, true), (100_000_000, false)] {
        let place = ToolLoop::new();
        place.tool("long", "", &format!("echo begin; head -c {bytes} /dev/zero | tr '\\0' x; echo end"));
        place.script(&[r#"{"tool_calls":[{"name":"long"}]}"#]);
        let ran = place.with_tools(&["x"]);
        let (content, ledger) = (&ran.results()[0], ran.of("item")[0]["ledger"].as_str().unwrap().to_owned());
        assert!(content.starts_with("begin") && content.ends_with("end\n"), "{}", content.len());
        assert!(content.len() < 70_000 && ran.stdout.len() < 400_000, "{} {}", content.len(), ran.stdout.len());
        assert!(std::fs::metadata(&ledger).unwrap().len() < 4_000_000);
        let hash = content.split("the whole is sha256:").nth(1).unwrap().split(' ').next().unwrap();
        let whole = std::fs::read(format!("{ledger}.blobs/{hash}")).unwrap();
        assert_eq!(whole.len() == bytes + 10, stored, "cp-exec keeps the rest: {}", whole.len());
    }
}
