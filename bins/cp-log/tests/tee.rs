//! `cp-log tee`, as a shell user meets it.

use crate::at::At;

const MESSAGE: &str = r#"{"ok":true,"schema_version":"1.0","type":"message","data":{"role":"user","content":"hi"}}"#;
const SUMMARY: &str =
    r#"{"ok":true,"schema_version":"1.0","type":"summary","data":{"total":1},"meta":{"duration_ms":1}}"#;
const FAILURE: &str = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_NOT_FOUND","message":"gone","details":{},"retryable":false}}"#;

#[test]
fn every_byte_passes_and_is_recorded() {
    let at = At::new();
    let input = format!("{MESSAGE}\n{FAILURE}\n{SUMMARY}\n");
    let done = at.cp_log(&["tee", "l.jsonl"]).write_stdin(input.clone()).assert().success();
    assert_eq!(String::from_utf8_lossy(&done.get_output().stdout), input);
    let stored = at.stored("l.jsonl");
    let events: Vec<_> = stored.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["ledger.open", "message", "error"]);
    assert_eq!((stored[1]["content"].as_str(), stored[2]["message"].as_str()), (Some("hi"), Some("gone")));
}

#[test]
fn text_passes_too() {
    let at = At::new();
    let done = at.cp_log(&["tee", "l.jsonl", "--event", "out"]).write_stdin("a\nb\n").assert().success();
    assert_eq!(done.get_output().stdout, b"a\nb\n");
    assert_eq!(at.stored("l.jsonl")[2]["message"], "b");
}

#[test]
fn without_its_ledger_nothing_passes() {
    let at = At::new();
    std::fs::write(at.path("notes"), "not a ledger\n").unwrap();
    let input = format!("{MESSAGE}\n{SUMMARY}\n");
    let closing = at.closing(&["tee", "notes"], &input, 2);
    assert_eq!(closing["error"]["code"], "E_VALIDATION");
}

#[test]
fn a_failing_closing_line_passes_with_its_exit() {
    let at = At::new();
    let failed = FAILURE.replace(r#""retryable":false}}"#, r#""retryable":false},"meta":{"duration_ms":1}}"#);
    let done = at.cp_log(&["tee", "l.jsonl"]).write_stdin(failed.clone() + "\n").assert().code(3);
    assert_eq!(String::from_utf8_lossy(&done.get_output().stdout), failed + "\n");
    assert_eq!(at.stored("l.jsonl")[1]["event"], "error");
}

#[test]
fn the_ledger_is_kept_when_the_reader_has_gone() {
    let at = At::new();
    let input = (0..5000).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    std::fs::write(at.path("in"), &input).unwrap();
    let script = "\"$0\" tee l.jsonl < in | head -1 > out";
    let mut command = assert_cmd::Command::new("sh");
    command.current_dir(at.path("")).env("CP_HOME", at.path("home"));
    command.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin("cp-log")).assert().success();
    assert_eq!(std::fs::read_to_string(at.path("out")).unwrap(), "line 0\n");
    assert_eq!(at.stored("l.jsonl").len(), 5001);
}

#[test]
fn a_line_is_recorded_before_it_is_seen() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let at = At::new();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("cp-log"));
    command.current_dir(at.path("")).env_clear().env("CP_HOME", at.path("home")).args(["tee", "l.jsonl"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for turn in 1..=3 {
        writeln!(input, "line {turn}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, format!("line {turn}\n"));
        assert_eq!(at.stored("l.jsonl").last().unwrap()["message"], line.trim_end());
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}
