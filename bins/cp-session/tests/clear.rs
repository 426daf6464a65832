//! `cp-session clear`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn the_turns_are_archived_and_the_session_begins_again() {
    let place = Sessions::new();
    let session = place.run(&["start", "--mode", "isolated"]).data()["session_id"].as_str().unwrap().to_owned();
    place.feed(&["tee", &session], message("old", "answer"));
    let data = place.run(&["clear", &session]).data();
    assert_eq!(data["turns"], 2);
    assert!(std::fs::read_to_string(data["archive"].as_str().unwrap()).unwrap().contains("\"old\""));
    assert_eq!(place.count(&session), 0);
    assert_eq!(place.run(&["load", &session]).data()["mode"], "isolated");
    place.feed(&["tee", &session], message("new", "answer"));
    assert_eq!(place.run(&["load", &session, "--format", "text"]).stdout, "user: new\nassistant: answer\n");
}

#[test]
fn a_dry_run_clears_nothing_and_an_ended_session_stays() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", "x"]);
    assert_eq!(place.run(&["clear", &session, "--dry-run"]).data()["turns"], 1);
    assert_eq!(place.count(&session), 1);
    place.run(&["end", &session]);
    place.run(&["clear", &session]).failed(6, "E_CONFLICT");
}
