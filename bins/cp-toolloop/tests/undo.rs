//! What the file tools and the commands of a run changed, put back: every file byte for byte, or none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use cp_testkit::{Outcome, until};
use proptest::prelude::*;
use rustix::process::{Signal, kill_process_group};
use serde_json::{Value, json};

use crate::toolloop::ToolLoop;

const POLICY: &str = "[exec]\nallowed_commands = [\"*\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n";

/// A model that makes these calls of filesystem, or of bash, one after the other.
fn playing(place: &ToolLoop, calls: &[Value]) {
    let name = |input: &Value| if input["command"].is_string() { "bash" } else { "filesystem" };
    let line = |input: &Value| json!({"tool_calls": [{"name": name(input), "input": input}]}).to_string();
    let lines: Vec<String> = calls.iter().map(line).chain([r#"{"content":"Done."}"#.to_owned()]).collect();
    place.script(&lines.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Runs that model, and gives the id of its run.
#[track_caller]
fn ran(place: &ToolLoop, calls: &[Value]) -> String {
    playing(place, calls);
    let most = (calls.len() + 1).to_string();
    let ran = place.run(&["--max-iterations", &most, "go"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.closing()["data"]["run_id"].as_str().unwrap().to_owned()
}

/// Undoes. A dry run says the same and changes nothing.
fn undo(place: &ToolLoop, words: &[&str]) -> Outcome {
    let before = files(place);
    let shown = place.run(&[&["undo", "--dry-run"], words].concat());
    assert_eq!(files(place), before, "{shown:?}");
    let done = place.run(&[&["undo"], words].concat());
    if done.status == 0 {
        assert_eq!(shown.closing()["data"], done.closing()["data"]);
    }
    done
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"operation": "edit_file", "path": path, "old": old, "new": new})
}

fn create(path: &str, content: &str) -> Value {
    json!({"operation": "write_file", "path": path, "content": content})
}

/// Every file of the project with its bytes and permissions.
fn files(place: &ToolLoop) -> BTreeMap<String, (Vec<u8>, u32)> {
    let names = place.work.names().into_iter().filter(|name| place.work.join(name).is_file());
    let state = |name: String| {
        let mode = fs::metadata(place.work.join(&name)).unwrap().permissions().mode() & 0o777;
        (place.work.bytes(&name), mode)
    };
    names.map(|name| (name.clone(), state(name))).collect()
}

fn put_back(outcome: &Outcome) -> Vec<String> {
    let files = outcome.closing()["data"]["files"].as_array().unwrap_or_else(|| panic!("{outcome:?}")).clone();
    let words = |file: &Value| {
        let name = file["path"].as_str().unwrap().rsplit('/').next().unwrap();
        format!("{} {name}", file["action"].as_str().unwrap())
    };
    files.iter().map(words).collect()
}

/// A call that may or may not succeed.
fn call() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec!["text", "crlf", "bytes", "empty", "script", "new", "other"]);
    let word = prop::sample::select(vec!["a", "b\n", "line", "\r\n", "é", "", "x\ny"]);
    (path, word.clone(), word, 0..10_u8).prop_map(|(path, old, new, kind)| match kind {
        0..=2 => json!({"operation": "edit_file", "path": path, "old": old, "new": new, "all": kind > 0}),
        3 => create(path, new),
        4 => json!({"operation": "edit_file", "path": path, "old": old, "new": new, "all": true}),
        5 => json!({"operation": "read_file", "path": path}),
        6 => json!({"operation": "remove_file", "path": path}),
        7 => json!({"command": format!("echo more >> {path}")}),
        8 => json!({"command": format!("rm -f {path}; mkdir -p deep/er; echo x > deep/er/{path}")}),
        _ => json!({"command": format!("chmod 700 {path}; mv {path} other")}),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn undo_restores_bytes_and_permissions(calls in prop::collection::vec(call(), 4..16)) {
        let place = ToolLoop::new();
        place.policy(POLICY);
        let contents: [(&str, &[u8], u32); 5] = [
            ("text", b"a line\nb\nthe end without newline", 0o644),
            ("crlf", b"a\r\nline\r\n", 0o600),
            ("bytes", b"\xff\xfea\0line\n\x80", 0o664),
            ("empty", b"", 0o640),
            ("script", b"#!/bin/sh\nb\n", 0o755),
        ];
        for (name, bytes, mode) in contents {
            fs::set_permissions(place.work.write(name, bytes), fs::Permissions::from_mode(mode)).unwrap();
        }
        let before = files(&place);
        place.work.write("mine", "by the owner");
        // Whatever the others do, some of it is done; a read file can be removed.
        let mut all = vec![edit("text", "the end", "no end"), json!({"operation": "read_file", "path": "script"})];
        all.push(json!({"operation": "remove_file", "path": "script"}));
        all.extend(calls);
        let run = ran(&place, &all);
        prop_assert_ne!(&files(&place), &before);
        let undone = undo(&place, &[&run]);
        prop_assert_eq!(undone.status, 0, "{:?}", undone);
        prop_assert!(!place.work.join("deep").exists() && place.written("mine") == "by the owner");
        fs::remove_file(place.work.join("mine")).unwrap();
        prop_assert_eq!(&files(&place), &before);
        let again = undo(&place, &[&run]);
        prop_assert_eq!(put_back(&again), Vec::<String>::new());
    }
}

#[test]
fn undo_of_call_is_recorded_and_ledger_verifies() {
    let place = ToolLoop::new();
    place.policy(POLICY);
    place.work.write("a", "one");
    let calls = [edit("a", "one", "1"), json!({"command": "echo new > made; echo 2 > a"}), create("b", "new")];
    let run = ran(&place, &calls);
    place.run(&["undo", &run, "--call", "call_1_1", "--dry-run"]).failed(6, "E_CONFLICT");
    place.run(&["undo", &run, "--call", "call_9_9", "--dry-run"]).failed(3, "E_NOT_FOUND");
    assert_eq!(put_back(&undo(&place, &["RUN-", "--call", "call_2_1"])), ["restore a", "remove made"]);
    assert_eq!(place.written("a"), "1");
    assert_eq!(put_back(&undo(&place, &[&run])), ["restore a", "remove b"]);
    let ledger = place.home.join(format!("planes/ho1/runs/{run}.jsonl"));
    let mut entries = place.home.records(&ledger);
    entries.retain(|entry| entry["event"] == "exec.changes");
    let operations: Vec<&Value> = entries.iter().map(|entry| &entry["data"]["operation"]).collect();
    let (edit, write) = ("filesystem.edit_file", "filesystem.write_file");
    assert_eq!(operations, [&json!(edit), &Value::Null, &json!(write), &json!("undo"), &json!("undo")]);
    for verb in ["verify", "audit"] {
        place.program("cp-log").args([verb, &ledger.display().to_string()]).run().success();
    }
}

#[test]
fn undo_refuses_later_change() {
    let place = ToolLoop::new();
    place.work.write("a", "one");
    place.work.write("c", "three");
    let run = ran(&place, &[edit("a", "one", "1"), create("b", "new"), edit("c", "three", "3")]);
    fs::set_permissions(place.work.join("c"), fs::Permissions::from_mode(0o700)).unwrap();
    place.work.write("b", "new, and more by hand");
    for words in [&["undo", &run, "--dry-run"][..], &["undo", &run]] {
        let refused = place.run(words).failed(6, "E_CONFLICT");
        assert!(refused["details"]["path"].as_str().unwrap().ends_with("/b"), "{refused}");
        assert!(refused["details"]["hint"].as_str().unwrap().contains("--except-changed"), "{refused}");
    }
    let shown = place.run(&["undo", &run, "--dry-run", "--except-changed"]);
    assert_eq!(shown.closing()["data"]["left_out"][0]["path"], json!(place.work.join("b")), "{shown:?}");
    assert_eq!((place.written("a").as_str(), place.written("b").as_str()), ("1", "new, and more by hand"));
    // A directory or a link in its place is a change too.
    fs::remove_file(place.work.join("b")).unwrap();
    std::os::unix::fs::symlink("a", place.work.join("b")).unwrap();
    place.run(&["undo", &run, "--dry-run"]).failed(6, "E_CONFLICT");
    // Gone by hand, as the undo would have it: nothing of others is lost.
    fs::remove_file(place.work.join("b")).unwrap();
    assert_eq!(put_back(&undo(&place, &[&run])), ["restore a", "restore c"]);
    assert_eq!(place.written("a"), "one");
    assert_eq!(files(&place)["c"], (b"three".to_vec(), 0o700), "permissions of others stay");
}

#[test]
fn undo_removes_directories_that_run_created_and_temporary_files_of_killed_changes() {
    let place = ToolLoop::new();
    place.policy(POLICY);
    place.work.directory("old");
    let shell =
        json!({"tool_calls": [{"name": "shell", "input": {"argv": ["mkdir", "-p", "new/deep", "full"]}}]}).to_string();
    let calls = ["new/deep/a", "full/a", "old/a"].map(|path| json!({"name": "filesystem", "input": create(path, "x")}));
    place.script(&[&shell, &json!({"tool_calls": calls}).to_string(), r#"{"content":"Done."}"#]);
    let ran = place.run(&["go"]).success();
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    place.work.write("full/other", "by hand");
    // A killed change has left the older one; the other may be in use.
    let [left, used] = ["old/.cp-exec-0123456789abcdef", "old/.cp-exec-fedcba9876543210"];
    place.work.write(used, "half");
    let file = fs::File::create(place.work.join(left)).unwrap();
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_mins(2)).unwrap();
    place.run(&["undo", &run]).success();
    assert!(!place.work.join("new").exists() && place.work.join("full/other").exists());
    let names: Vec<String> = fs::read_dir(place.work.join("old"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, [used.trim_start_matches("old/")], "only a file that a process may write stays");
}

#[test]
fn undo_puts_back_what_killed_command_changed_or_names_it() {
    for is_known in [true, false] {
        let place = ToolLoop::new();
        place.tool("step", "", "echo begun >begun; sleep 60");
        place.script(&[r#"{"tool_calls":[{"name":"step"}]}"#]);
        let running = place.command(&["--tools", &place.tools(), "go"]);
        let running = running.with(|command| _ = command.process_group(0)).start();
        place.until_written("begun");
        kill_process_group(running.pid(), Signal::KILL).unwrap();
        running.kill();
        if !is_known {
            fs::remove_dir_all(place.home.join("state/kept/runs")).unwrap();
        }
        until("the command has ended", || place.run(&["undo", "--dry-run", "RUN-"]).status == 0);
        let undone = undo(&place, &["RUN-"]).closing();
        assert_eq!(place.work.join("begun").exists(), !is_known, "{undone}");
        let effects = undone["data"]["effects"].as_array().unwrap();
        let named = effects.iter().filter(|effect| effect["command"].as_str().unwrap().ends_with("/tools/step '{}'"));
        assert_eq!((effects.len(), named.count()), if is_known { (0, 0) } else { (1, 1) }, "{undone}");
    }
}

#[test]
fn undo_works_from_other_directory_and_on_paused_run() {
    let place = ToolLoop::new();
    place.work.write("a", "one");
    playing(&place, &[edit("a", "one", "1"), edit("a", "one", "uno")]);
    let paused = place.run(&["--max-iterations", "1", "go"]);
    let run = paused.error()["details"]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(place.written("a"), "1");
    let elsewhere = |words: &[&str]| place.command(words).current_dir(&*place.root).run();
    elsewhere(&["undo", &run]).success();
    assert_eq!(place.written("a"), "one");
    place.run(&["resume", &run, "--max-iterations", "3"]).success();
    assert_eq!(place.written("a"), "uno");
    undo(&place, &[&run]).success();
    assert_eq!(place.written("a"), "one");
}

#[test]
fn show_prints_differences_and_commands_without_secrets() {
    let place = ToolLoop::new();
    place.policy("[exec]\nallowed_commands = [\"echo\"]\n");
    place.work.write("a", "one\ntwo\nthree\n");
    place.work.write("bin", b"\0old");
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ456789";
    playing(
        &place,
        &[edit("a", "two", &format!("2\ntoken = {secret}")), create("new", "hello\n"), edit("bin", "old", "newer")],
    );
    let script = place.root.read("script");
    let command = r#"{"tool_calls":[{"name":"shell","input":{"argv":["echo","a b","c"]}}]}"#;
    place.script(&[command, &script]);
    let ran = place.run(&["go"]);
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    let shown = place.run(&["show", &run, "--format", "text"]).success().stdout;
    assert!(shown.contains("\n$ echo 'a b' c\n"), "{shown}");
    let file = |name: &str| place.work.join(name).display().to_string();
    let (a, new) = (file("a"), file("new"));
    assert!(shown.contains(&format!("--- {a}\n+++ {a}\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+token = ")), "{shown}");
    assert!(shown.contains(&format!("--- /dev/null\n+++ {new}\n@@ -0,0 +1 @@\n+hello\n")), "{shown}");
    assert!(shown.contains("\n4 bytes become 6 bytes, which are not text\n"), "{shown}");
    assert!(!shown.contains(secret), "{shown}");
}
