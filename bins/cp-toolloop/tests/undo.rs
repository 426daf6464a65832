//! What the file tools of a run changed, put back: every file byte for byte, or none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use cp_testkit::{Outcome, until};
use proptest::prelude::*;
use rustix::process::{Signal, kill_process_group};
use serde_json::{Value, json};

use crate::toolloop::ToolLoop;

/// A model that makes these calls of filesystem, one after the other.
fn playing(place: &ToolLoop, calls: &[Value]) {
    let line = |input: &Value| json!({"tool_calls": [{"name": "filesystem", "input": input}]}).to_string();
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
    let names = place.work.names().into_iter();
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
    (path, word.clone(), word, 0..7_u8).prop_map(|(path, old, new, kind)| match kind {
        0..=2 => json!({"operation": "edit_file", "path": path, "old": old, "new": new, "all": kind > 0}),
        3 => create(path, new),
        4 => json!({"operation": "edit_file", "path": path, "insert_line": 0, "new": new}),
        5 => json!({"operation": "read_file", "path": path}),
        _ => json!({"operation": "remove_file", "path": path}),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn undo_restores_bytes_and_permissions(calls in prop::collection::vec(call(), 4..16)) {
        let place = ToolLoop::new();
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
        // Whatever the others do, some of it is done; a read file can be removed.
        let mut all = vec![edit("text", "the end", "no end"), json!({"operation": "read_file", "path": "script"})];
        all.push(json!({"operation": "remove_file", "path": "script"}));
        all.extend(calls);
        let run = ran(&place, &all);
        prop_assert_ne!(&files(&place), &before);
        let undone = undo(&place, &[&run]);
        prop_assert_eq!(undone.status, 0, "{:?}", undone);
        prop_assert_eq!(&files(&place), &before);
        let again = undo(&place, &[&run]);
        prop_assert_eq!(put_back(&again), Vec::<String>::new());
    }
}

#[test]
fn undo_is_recorded_and_ledger_verifies() {
    let place = ToolLoop::new();
    place.work.write("a", "one");
    let run = ran(&place, &[edit("a", "one", "1"), create("b", "new")]);
    assert_eq!(put_back(&undo(&place, &[&run])), ["restore a", "remove b"]);
    let ledger = place.home.join(format!("planes/ho1/runs/{run}.jsonl"));
    let entries = place.home.records(&ledger);
    let events: Vec<&str> = entries.iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    let at = |event: &str| events.iter().rposition(|found| *found == event).unwrap_or_else(|| panic!("{events:?}"));
    assert!(at("run_end") < at("exec.operation") && at("exec.operation") < at("undone"), "{events:?}");
    assert_eq!(entries[at("exec.operation")]["data"]["operation"], "filesystem.restore_files");
    let path = ledger.display().to_string();
    for verb in ["verify", "audit"] {
        place.program("cp-log").args([verb, &path]).run().success();
    }
}

#[test]
fn undo_finds_run_by_id_prefix() {
    let place = ToolLoop::new();
    let run = ran(&place, &[create("b", "new")]);
    assert_eq!(put_back(&undo(&place, &["RUN-"])), ["remove b"]);
    place.run(&["show", "RUN-"]).success();
    let ledgers = place.home.at("planes/ho1/runs").names();
    assert!(ledgers.iter().all(|name| name.starts_with(&run)), "{ledgers:?}");
}

#[test]
fn undo_refuses_later_change() {
    let place = ToolLoop::new();
    place.work.write("a", "one");
    let run = ran(&place, &[edit("a", "one", "1"), create("b", "new")]);
    place.work.write("b", "new, and more by hand");
    for words in [&["undo", &run, "--dry-run"][..], &["undo", &run]] {
        let refused = place.run(words).failed(6, "E_CONFLICT");
        assert!(refused["details"]["path"].as_str().unwrap().ends_with("/b"), "{refused}");
    }
    assert_eq!((place.written("a").as_str(), place.written("b").as_str()), ("1", "new, and more by hand"));
    // A directory or a link in its place is a change too.
    fs::remove_file(place.work.join("b")).unwrap();
    std::os::unix::fs::symlink("a", place.work.join("b")).unwrap();
    place.run(&["undo", &run, "--dry-run"]).failed(6, "E_CONFLICT");
    // Gone by hand, as the undo would have it: nothing of others is lost.
    fs::remove_file(place.work.join("b")).unwrap();
    assert_eq!(put_back(&undo(&place, &[&run])), ["restore a"]);
    assert_eq!(place.written("a"), "one");
}

#[test]
fn undo_of_call_requires_no_later_call_on_file() {
    let place = ToolLoop::new();
    place.work.write("a", "one two");
    place.work.write("b", "three");
    let run = ran(&place, &[edit("a", "one", "1"), edit("b", "three", "3"), edit("a", "two", "2")]);
    place.run(&["undo", &run, "--call", "call_1_1", "--dry-run"]).failed(6, "E_CONFLICT");
    assert_eq!(put_back(&undo(&place, &[&run, "--call", "call_2_1"])), ["restore b"]);
    assert_eq!(put_back(&undo(&place, &[&run, "--call", "call_3_1"])), ["restore a"]);
    assert_eq!(put_back(&undo(&place, &[&run, "--call", "call_1_1"])), ["restore a"]);
    assert_eq!((place.written("a").as_str(), place.written("b").as_str()), ("one two", "three"));
    place.run(&["undo", &run, "--call", "call_9_9", "--dry-run"]).failed(3, "E_NOT_FOUND");
    assert_eq!(put_back(&undo(&place, &[&run])), Vec::<String>::new());
}

#[test]
fn undo_names_later_call_or_leaves_out_changed_files() {
    let place = ToolLoop::new();
    place.work.write("a", "one two");
    place.work.write("b", "three");
    let run = ran(&place, &[edit("a", "one", "1"), edit("b", "three", "3"), edit("a", "two", "2")]);
    let refused = place.run(&["undo", &run, "--call", "call_1_1", "--dry-run"]).failed(6, "E_CONFLICT");
    assert_eq!(refused["details"]["call"], "call_3_1", "{refused}");
    assert!(refused["details"]["hint"].as_str().unwrap().contains("--call call_3_1"), "{refused}");
    place.work.write("b", "by hand");
    let refused = place.run(&["undo", &run, "--dry-run"]).failed(6, "E_CONFLICT");
    assert!(refused["details"]["hint"].as_str().unwrap().contains("--except-changed"), "{refused}");
    let undone = undo(&place, &[&run, "--except-changed"]);
    assert_eq!(put_back(&undone), ["restore a"]);
    assert_eq!(undone.closing()["data"]["left_out"], json!([place.work.join("b")]));
    assert_eq!((place.written("a").as_str(), place.written("b").as_str()), ("one two", "by hand"));
}

#[test]
fn undo_removes_directories_that_run_created_and_temporary_files_of_killed_changes() {
    let place = ToolLoop::new();
    place.policy("[exec]\nallowed_commands = [\"mkdir\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
    place.work.directory("old");
    let shell =
        json!({"tool_calls": [{"name": "shell", "input": {"argv": ["mkdir", "-p", "new/deep", "full"]}}]}).to_string();
    let calls = ["new/deep/a", "full/a", "old/a"].map(|path| json!({"name": "filesystem", "input": create(path, "x")}));
    place.script(&[&shell, &json!({"tool_calls": calls}).to_string(), r#"{"content":"Done."}"#]);
    let ran = place.run(&["go"]).success();
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    place.work.write("full/other", "by hand");
    // The process of its number shows nothing: another one may have the number now.
    let (left, used) = (format!("old/.a.{}.tmp", std::process::id()), "old/.a.4194305.tmp");
    place.work.write(left, "half");
    place.work.write(used, "half");
    let writing = fs::File::open(place.work.join(used)).unwrap();
    writing.lock().unwrap();
    place.run(&["undo", &run]).success();
    assert!(!place.work.join("new").exists() && place.work.join("full/other").exists());
    let names: Vec<String> = fs::read_dir(place.work.join("old"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, [used.trim_start_matches("old/")], "only a file that a process writes stays");
}

/// The effects that an undo leaves: the call and the command line of each, and its changed files by name.
fn effects(outcome: &Outcome) -> Vec<(String, String, Option<Vec<String>>)> {
    let effects = outcome.closing()["data"]["effects"].as_array().unwrap_or_else(|| panic!("{outcome:?}")).clone();
    let named = |file: &Value| {
        let name = file["path"].as_str().unwrap().rsplit('/').next().unwrap();
        format!("{} {name}", file["change"].as_str().unwrap())
    };
    let text = |effect: &Value, name: &str| effect[name].as_str().unwrap_or_default().to_owned();
    let files = |effect: &Value| effect["files"]["files"].as_array().map(|files| files.iter().map(named).collect());
    effects.iter().map(|effect| (text(effect, "call"), text(effect, "command"), files(effect))).collect()
}

#[test]
fn undo_names_changes_of_commands_and_how_to_take_them_back() {
    let place = ToolLoop::new();
    place.policy("[exec]\nallowed_commands = [\"*\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
    place.tool("note", "", "echo noted >note");
    for (name, text) in [("edited", "one"), ("old", "two"), ("grown", "three")] {
        place.work.write(name, text);
    }
    let before = files(&place);
    let line = "echo new >made; rm old; echo more >>grown";
    let calls = [
        json!({"name": "filesystem", "input": edit("edited", "one", "1")}),
        json!({"name": "bash", "input": {"command": line}}),
        json!({"name": "shell", "input": {"argv": ["touch", "a b"]}}),
        json!({"name": "bash", "input": {"command": "true; wc -l grown"}}),
        json!({"name": "note", "input": {}}),
    ];
    let script: Vec<String> = calls.iter().map(|call| json!({"tool_calls": [call]}).to_string()).collect();
    let script = script.iter().map(String::as_str).chain([r#"{"content":"Done."}"#]).collect::<Vec<_>>();
    place.script(&script);
    let ran = place.with_tools(&["go"]).success();
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    let undone = undo(&place, &[&run]);
    assert_eq!(put_back(&undone), ["restore edited"]);
    let left = effects(&undone);
    let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(left.len(), 3, "{left:?}");
    let expected = ("call_2_1".to_owned(), line.to_owned(), named(&["changed grown", "created made", "removed old"]));
    assert_eq!(left[0], expected);
    assert_eq!(left[1], ("call_3_1".to_owned(), "touch 'a b'".to_owned(), named(&["created a b"])));
    assert!(left[2].1.ends_with("/tools/note '{}'") && left[2].2 == named(&["created note"]), "{left:?}");
    let text = place.run(&["undo", &run, "--dry-run", "--format", "text"]).stdout;
    assert!(text.contains(&format!("not undone: call_2_1: {line}\n  changed ")), "{text}");
    assert_eq!(effects(&undo(&place, &[&run, "--call", "call_3_1"])), left[1..2]);
    // The named commands take them back.
    let whole = undone.closing()["data"]["effects"].as_array().unwrap().clone();
    for effect in whole.iter().rev() {
        let words = effect["undo"].as_str().unwrap().split(' ').collect::<Vec<_>>();
        let shown = place.program(words[0]).args(&words[1..]).args(["--dry-run"]).run().success();
        let token = shown.closing()["data"]["confirm_token"].as_str().unwrap().to_owned();
        place.program(words[0]).args(&words[1..]).args(["--confirm", &token]).run().success();
    }
    assert_eq!(files(&place), before);
}

#[test]
fn undo_names_killed_command_whose_changes_are_unknown() {
    let place = ToolLoop::new();
    place.tool("step", "", "echo begun >begun; sleep 60");
    place.script(&[r#"{"tool_calls":[{"name":"step"}]}"#]);
    let running = place.command(&["--tools", &place.tools(), "go"]);
    let running = running.with(|command| _ = command.process_group(0)).start();
    place.until_written("begun");
    kill_process_group(running.pid(), Signal::KILL).unwrap();
    running.kill();
    until("the command has ended", || place.run(&["undo", "--dry-run", "RUN-"]).status == 0);
    let left = effects(&undo(&place, &["RUN-"]));
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].1.ends_with("/tools/step '{}'") && left[0].2.is_none(), "{left:?}");
}

#[test]
fn killed_undo_is_completed_by_next() {
    let place = ToolLoop::new();
    place.work.write("a", "one");
    place.work.write("b", "two");
    let run = ran(&place, &[edit("a", "one", "1"), edit("b", "two", "2")]);
    assert_eq!(put_back(&undo(&place, &[&run])).len(), 2);
    // What a kill between the two leaves: both on the record, one of them done.
    place.work.write("b", "2");
    assert_eq!(put_back(&undo(&place, &[&run])), ["restore b"]);
    assert_eq!((place.written("a").as_str(), place.written("b").as_str()), ("one", "two"));
}

#[test]
fn undo_keeps_permissions_set_after_run() {
    let place = ToolLoop::new();
    let path = place.work.write("a", "one");
    let run = ran(&place, &[edit("a", "one", "1")]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    undo(&place, &[&run]).success();
    assert_eq!(files(&place)["a"], (b"one".to_vec(), 0o700));
}

#[test]
fn undo_is_subject_to_policy() {
    let place = ToolLoop::new();
    place.work.write("a", "one");
    place.work.write("b", "two");
    let run = ran(&place, &[edit("a", "one", "1"), edit("b", "two", "2")]);
    place.policy("[paths]\nread = [\".\"]\nwrite = [\".\"]\npristine = [\"b\"]\n");
    let refused = undo(&place, &[&run]).failed(4, "E_FORBIDDEN");
    assert!(refused["details"]["path"].as_str().unwrap().ends_with("/b"), "{refused}");
    assert_eq!(place.written("a"), "1");
    place.policy("[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
    undo(&place, &[&run]).success();
    assert_eq!(place.written("a"), "one");
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
fn undo_refuses_active_run() {
    let place = ToolLoop::new();
    place.tool("step", "", "echo begun >begun; sleep 4");
    place.script(&[r#"{"tool_calls":[{"name":"step"}]}"#]);
    let mut running = place.command(&["--tools", &place.tools(), "go"]).start();
    let run = running.record()["data"]["run_id"].as_str().unwrap().to_owned();
    place.until_written("begun");
    place.run(&["undo", &run, "--dry-run"]).failed(6, "E_CONFLICT");
    running.kill();
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
    let (a, new, bin) = (file("a"), file("new"), file("bin"));
    assert!(shown.contains(&format!("--- {a}\n+++ {a}\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+token = ")), "{shown}");
    assert!(shown.contains(&format!("--- /dev/null\n+++ {new}\n@@ -0,0 +1 @@\n+hello\n")), "{shown}");
    assert!(
        shown.contains(&format!("+++ {bin}\nedit: no difference in lines can be shown; 4 bytes before, 6 bytes after")),
        "{shown}"
    );
    assert!(!shown.contains(secret), "{shown}");
}
