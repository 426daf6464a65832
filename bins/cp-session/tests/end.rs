//! `cp-session end`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn a_session_ends_once() {
    let place = Sessions::new();
    let session = place.start();
    place.feed(&["tee", &session], message("q", "a"));
    let first = place.run(&["end", &session]).data();
    assert_eq!((&first["turns"], &first["already"]), (&2.into(), &false.into()));
    let again = place.run(&["end", &session]).data();
    assert_eq!((&again["already"], &again["receipt"]), (&true.into(), &first["receipt"]));
    assert_eq!(place.entries(&session).iter().filter(|entry| entry["event"] == "session_end").count(), 1);
}

#[test]
fn nothing_is_added_after_the_end() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["end", &session]);
    place.run(&["append", "--session", &session, "--", "x"]).failed(6, "E_CONFLICT");
    place.feed(&["tee", &session], message("q", "a")).failed(6, "E_CONFLICT");
    assert_eq!(place.count(&session), 0);
}

#[test]
fn a_dry_run_ends_nothing() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["end", &session, "--dry-run"]).data();
    assert_eq!(place.run(&["show", &session]).data()["ended"], false);
}

#[test]
fn ended_session_can_be_resumed() {
    let place = Sessions::new();
    let session = place.start();
    assert_eq!(place.run(&["reopen", &session]).data()["already"], true);
    for round in 1..3 {
        place.run(&["end", &session]);
        place.run(&["append", "--session", &session, "--", "x"]).failed(6, "E_CONFLICT");
        assert_eq!(place.run(&["reopen", &session]).data()["already"], false);
        place.feed(&["tee", &session], message("q", "a"));
        assert_eq!(place.count(&session), 2 * round);
        let listed = place.run(&["list"]).data();
        assert_eq!((&listed["items"][0]["ended"], &listed["count"]), (&false.into(), &1.into()));
    }
    let events: Vec<_> = place.entries(&session).iter().map(|entry| entry["event"].clone()).collect();
    assert_eq!(events.iter().filter(|event| *event == "session_end").count(), 2);
    assert_eq!(events.iter().filter(|event| *event == "session_resumed").count(), 2);
}
