//! `cp-session append`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn a_text_is_one_turn_whole() {
    let place = Sessions::new();
    let session = place.start();
    let data = place.feed(&["append", "--session", &session], "two\nlines, password=hunter2\n").data();
    assert_eq!((&data["role"], &data["redactions"]), (&"user".into(), &1.into()));
    place.run(&["append", "--session", &session, "--role", "assistant", "--", "an answer"]).data();
    let entries = place.entries(&session);
    let content = entries[1]["content"].as_str().unwrap();
    assert!(content.starts_with("two\nlines, password=") && !content.contains("hunter2"), "{content}");
    assert_eq!((&entries[2]["role"], &entries[2]["content"]), (&"assistant".into(), &"an answer".into()));
    assert_eq!(entries[1]["seq"], data["receipt"]["seq"]);
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
fn nothing_is_written_for_an_empty_text_or_another_role() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", " "]).failed(2, "E_VALIDATION");
    place.run(&["append", "--session", &session, "--role", "robot", "--", "x"]).failed(2, "E_USAGE");
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
