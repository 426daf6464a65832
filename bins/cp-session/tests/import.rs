//! `cp-session import`, as a shell user meets it.

use crate::sessions::Sessions;

const LINES: [&str; 4] = [
    r#"{"type":"user","sessionId":"s1","message":{"role":"user","content":"the password=hunter2hunter is old"}}"#,
    r#"{"type":"assistant","sessionId":"s1","message":{"content":[{"type":"tool_use","id":"t","name":"ls","input":{"n":1}}]}}"#,
    r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"a b"}]}}"#,
    r#"{"type":"assistant","message":{"content":[{"type":"text","text":"done"}]}}"#,
];

#[test]
fn the_same_transcript_is_one_session_and_grows() {
    let place = Sessions::new();
    place.work.write("t.jsonl", LINES[..2].join("\n") + "\n{\"torn");
    let first = place.run(&["import", "t.jsonl"]);
    assert_eq!(first.closing()["meta"]["notices"][0]["type"], "lines_skipped");
    let first = first.data();
    assert_eq!((&first["format"], &first["added"], &first["skipped"]), (&"claude_code".into(), &2.into(), &1.into()));
    place.work.write("t.jsonl", LINES.join("\n"));
    let second = place.run(&["import", "t.jsonl"]).data();
    assert_eq!((&second["session_id"], &second["added"]), (&first["session_id"], &2.into()));
    assert_eq!(place.run(&["import", "t.jsonl"]).data()["added"], 0);
    let session = first["session_id"].as_str().unwrap();
    assert_eq!(place.count(session), 4);
    assert!(!std::fs::read_to_string(place.file(session)).unwrap().contains("hunter2"));
    assert_eq!(place.run(&["check", session]).data()["intact"], true);
}

#[test]
fn what_a_crash_fused_or_tore_is_taken_apart() {
    let place = Sessions::new();
    // Two lines in one, NUL bytes, and the piece of a line that swallowed the next.
    let text = format!("{}{}\n\0\0\0\0{}\n{}{}\n", LINES[0], LINES[1], LINES[2], &LINES[0][..40], LINES[3]);
    place.work.write("t.jsonl", text);
    let data = place.run(&["import", "t.jsonl"]).data();
    assert_eq!((&data["turns"], &data["skipped"]), (&4.into(), &2.into()));
    let session = data["session_id"].as_str().unwrap();
    assert_eq!(place.run(&["check", session]).data()["intact"], true);
    assert_eq!(place.run(&["import", "t.jsonl"]).data()["added"], 0);
}

#[test]
fn a_dry_run_makes_nothing_and_other_files_are_refused() {
    let place = Sessions::new();
    place.work.write("t.jsonl", LINES.join("\n"));
    assert_eq!(place.run(&["import", "t.jsonl", "--dry-run"]).data()["turns"], 4);
    assert_eq!(place.run(&["list"]).data()["count"], 0);
    place.work.write("x", "hello\n");
    place.run(&["import", "x"]).failed(2, "E_VALIDATION");
    place.run(&["import", "none"]).failed(3, "E_NOT_FOUND");
}
