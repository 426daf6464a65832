//! `cp-session append`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn a_text_is_one_turn_whole() {
    let place = Sessions::new();
    let session = place.start();
    let data = place.feed(&["append", "--session", &session], "two\nlines\n").data();
    assert_eq!(data["role"], "user");
    place.run(&["append", "--session", &session, "--role", "assistant", "--", "an answer"]).data();
    let entries = place.entries(&session);
    assert_eq!(entries[1]["content"], "two\nlines");
    assert_eq!((&entries[2]["role"], &entries[2]["content"]), (&"assistant".into(), &"an answer".into()));
    assert_eq!(entries[1]["seq"], data["receipt"]["seq"]);
}

#[test]
fn secrets_are_taken_out_before_anything_is_written() {
    let place = Sessions::new();
    let session = place.start();
    let data = place.feed(&["append", "--session", &session], "key and password=hunter2\n").data();
    assert_eq!(data["redactions"], 1);
    assert!(!std::fs::read_to_string(place.file(&session)).unwrap().contains("hunter2"));
}

#[test]
fn rows_and_messages_are_a_turn_each() {
    let place = Sessions::new();
    let session = place.start();
    let rows = "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"robot\",\"content\":\"b\"}\n{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"c\"}]}\n";
    let ran = place.feed(&["append", "--session", &session, "--rows"], rows);
    assert_eq!((ran.status, &ran.closing()["error"]["details"]["failed"]), (1, &1.into()));
    assert_eq!(place.count(&session), 2);
    place.feed(&["append", "--session", &session], message("q", "a")).data();
    assert_eq!(place.count(&session), 3, "the message's own turn, not its question");
}

#[test]
fn the_same_request_adds_one_turn() {
    let place = Sessions::new();
    let session = place.start();
    let first = place.run(&["append", "--session", &session, "--request-id", "r", "--", "x"]).data();
    assert_eq!(place.run(&["append", "--session", &session, "--request-id", "r", "--", "x"]).data(), first);
    place.run(&["append", "--session", &session, "--request-id", "r", "--", "y"]).failed(6, "E_CONFLICT");
    assert_eq!(place.count(&session), 1);
}

#[test]
fn nothing_is_written_by_a_dry_run_or_for_an_empty_text() {
    let place = Sessions::new();
    let session = place.start();
    assert!(place.run(&["append", "--session", &session, "--dry-run", "--", "x"]).data()["receipt"].is_null());
    place.run(&["append", "--session", &session, "--", " "]).failed(2, "E_VALIDATION");
    place.feed(&["append", "--session", &session], "").failed(2, "E_VALIDATION");
    place.run(&["append", "--session", &session, "--role", "robot", "--", "x"]).failed(2, "E_USAGE");
    place.run(&["append", "--session", &session, "a", "b"]).failed(2, "E_USAGE");
    assert_eq!(place.count(&session), 0);
}

#[test]
fn many_writers_at_once_lose_nothing_and_break_nothing() {
    let place = Sessions::new();
    let session = place.start();
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let (place, session) = (&place, &session);
            scope.spawn(move || {
                for turn in 0..4 {
                    let text = format!("m{writer}.{turn}");
                    place.run(&["append", "--session", session, "--sync", "none", "--", &text]).data();
                }
            });
        }
    });
    assert_eq!(place.count(&session), 64);
    let entries = place.entries(&session);
    for pair in entries.windows(2) {
        assert_eq!(pair[0]["hash"], pair[1]["prev"]);
    }
}

#[test]
fn a_large_turn_comes_back_whole() {
    let place = Sessions::new();
    let session = place.start();
    let text = "many words ".repeat(200_000);
    place.feed(&["append", "--session", &session], &text).data();
    let loaded = place.run(&["load", &session]).data();
    assert_eq!(loaded["messages"][0]["content"].as_str().unwrap().len(), text.len());
}
