//! `cp-session end`, `reopen`, `clear`, `export` and `fork`.

use crate::sessions::{Sessions, message};

#[test]
fn session_ends_once_and_can_be_reopened() {
    let place = Sessions::new();
    let session = place.start();
    assert_eq!(place.run(&["reopen", &session]).data()["already"], true);
    for round in 1..3 {
        place.feed(&["tee", &session], message("q", "a")).success();
        let first = place.run(&["end", &session]).data();
        assert_eq!((&first["turns"], &first["already"]), (&(2 * round).into(), &false.into()));
        let again = place.run(&["end", &session]).data();
        assert_eq!((&again["already"], &again["receipt"]), (&true.into(), &first["receipt"]));
        place.run(&["append", "--session", &session, "--", "x"]).failed(6, "E_CONFLICT");
        place.feed(&["tee", &session], message("q", "a")).failed(6, "E_CONFLICT");
        place.run(&["clear", &session]).failed(6, "E_CONFLICT");
        assert_eq!(place.run(&["list", "--open"]).data()["count"], 0);
        assert_eq!(place.run(&["reopen", &session]).data()["already"], false);
        assert_eq!(place.count(&session), 2 * round);
        let listed = place.run(&["list"]).data();
        assert_eq!((&listed["items"][0]["ended"], &listed["count"]), (&false.into(), &1.into()));
    }
    for event in ["session_end", "session_resumed"] {
        assert_eq!(place.entries(&session).iter().filter(|entry| entry["event"] == event).count(), 2, "{event}");
    }
}

#[test]
fn turns_are_archived_and_session_begins_again() {
    let place = Sessions::new();
    let session = place.run(&["start", "--mode", "isolated"]).data()["session_id"].as_str().unwrap().to_owned();
    place.feed(&["tee", &session], message("old", "answer"));
    let data = place.run(&["clear", &session]).data();
    assert_eq!(data["turns"], 2);
    assert!(std::fs::read_to_string(data["archive"].as_str().unwrap()).unwrap().contains("\"old\""));
    assert_eq!((place.count(&session), &place.run(&["load", &session]).data()["mode"]), (0, &"isolated".into()));
    place.feed(&["tee", &session], message("new", "answer"));
    assert_eq!(place.run(&["load", &session, "--format", "text"]).stdout, "user: new\nassistant: answer\n");
}

#[test]
fn export_summary_has_no_secrets() {
    let place = Sessions::new();
    let session = place.start();
    place.feed(&["tee", &session], message("my password=hunter2hunter", "noted"));
    let data = place.run(&["export", &session]).data();
    let text = std::fs::read_to_string(data["path"].as_str().unwrap()).unwrap();
    assert!(!text.contains("hunter2"));
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&summary["turn_count"], &summary["turns"][1]["text"]), (&2.into(), &"noted".into()));
    assert_eq!(place.entries(&session).last().unwrap()["event"], "session_export");
}

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
    place.run(&["fork", &session, "--at", "5"]).failed(2, "E_VALIDATION");
    assert_eq!(place.run(&["list"]).data()["count"], 2, "a fork that fails creates no session");
}
