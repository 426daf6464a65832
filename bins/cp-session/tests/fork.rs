//! `cp-session fork`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn fork_copies_first_turns_and_is_independent() {
    let place = Sessions::new();
    let session = place.start();
    place.feed(&["tee", &session], message("a", "b"));
    place.feed(&["tee", &session], message("c", "d"));
    let data = place.run(&["fork", &session, "--at", "2"]).data();
    assert_eq!(data["forked_from"], serde_json::json!({"session_id": session, "turns": 2}));
    let fork = data["session_id"].as_str().unwrap();
    assert_eq!(place.run(&["load", fork, "--format", "text"]).stdout, "user: a\nassistant: b\n");
    place.run(&["append", "--session", fork, "--", "x"]).data();
    assert_eq!((place.count(fork), place.count(&session)), (3, 4));
    assert_eq!(place.run(&["fork", &session]).data()["forked_from"]["turns"], 4);
}

#[test]
fn fork_at_missing_turn_creates_no_session() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["fork", &session, "--at", "1"]).failed(2, "E_VALIDATION");
    assert_eq!(place.run(&["list"]).data()["count"], 1);
}

#[test]
fn fork_copies_turns_of_a_repair() {
    let place = Sessions::new();
    let session = place.with_open_call();
    place.run(&["check", &session, "--repair"]).data();
    let ran = place.run(&["fork", &session]);
    assert_eq!(ran.closing()["meta"].get("notices"), None);
    let fork = ran.data()["session_id"].as_str().unwrap().to_owned();
    assert_eq!(place.run(&["load", &fork]).data()["messages"], place.run(&["load", &session]).data()["messages"]);
    assert_eq!(place.run(&["check", &fork]).data()["intact"], true);
}
