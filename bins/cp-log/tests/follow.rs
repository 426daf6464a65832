//! `cp-log follow`, as a shell user meets it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::at::At;

fn follow(at: &At, arguments: &[&str]) -> (Child, impl Iterator<Item = serde_json::Value>) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("cp-log"));
    command.current_dir(at.path("")).env("CP_HOME", at.path("home")).arg("follow").args(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()))
}

#[test]
fn entries_come_at_once_and_across_a_rotation() {
    let at = At::new();
    at.ledger("l.jsonl", 3);
    let (mut child, mut lines) =
        follow(&at, &["l.jsonl", "--last", "1", "--limit", "5", "--event", "tick", "--event", "e"]);
    assert_eq!(lines.next().unwrap()["data"]["seq"], 2);
    at.lines(&["append", "-f", "l.jsonl", "--event", "e", "one"], "");
    assert_eq!(lines.next().unwrap()["data"]["message"], "one");
    at.lines(&["append", "-f", "l.jsonl", "--event", "other", "x"], "");
    at.lines(&["append", "-f", "l.jsonl", "--event", "e", "two"], "");
    at.lines(&["rotate", "l.jsonl"], "");
    at.lines(&["append", "-f", "l.jsonl", "--event", "e", "three"], "");
    assert_eq!(lines.next().unwrap()["data"]["message"], "two");
    assert_eq!(lines.next().unwrap()["data"]["message"], "three");
    at.lines(&["append", "-f", "l.jsonl", "--event", "e", "four"], "");
    assert_eq!(lines.next().unwrap()["data"]["message"], "four");
    let closing = lines.next().unwrap();
    assert_eq!((closing["type"].as_str(), closing["data"]["count"].as_u64()), (Some("summary"), Some(5)));
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_signal_ends_it_with_a_closing_line() {
    let at = At::new();
    at.ledger("l.jsonl", 2);
    let (mut child, mut lines) = follow(&at, &["l.jsonl", "--last", "1"]);
    lines.next().unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let closing = lines.next().unwrap();
    assert_eq!(closing["error"]["code"], "E_INTERRUPTED");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    at.closing(&["follow", "none.jsonl"], "", 3);
}
