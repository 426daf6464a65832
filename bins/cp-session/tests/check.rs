//! `cp-session check`, as a shell user meets it.

use std::io::Write as _;

use crate::sessions::{Sessions, message};

#[test]
fn a_whole_session_is_intact() {
    let place = Sessions::new();
    let session = place.start();
    place.feed(&["tee", &session], message("a", "b"));
    let data = place.run(&["check", &session, "--strict-exit"]).data();
    assert_eq!((&data["intact"], &data["fault_count"]), (&true.into(), &0.into()));
}

#[test]
fn an_open_tool_call_is_found_and_gets_a_result_in_its_place() {
    let place = Sessions::new();
    let session = place.with_open_call();
    let data = place.run(&["check", &session]).data();
    assert_eq!((&data["intact"], &data["open_calls"][0]["id"]), (&false.into(), &"t1".into()));
    place.run(&["check", &session, "--strict-exit"]).failed(1, "E_INTEGRITY");
    assert_eq!(place.run(&["check", &session, "--repair", "--dry-run"]).data()["repaired"], false);
    let data = place.run(&["check", &session, "--repair"]).data();
    assert_eq!((&data["repaired"], &data["intact"]), (&true.into(), &true.into()));
    let messages = place.run(&["load", &session]).data()["messages"].clone();
    assert_eq!(messages[2]["content"][0]["tool_use_id"], "t1");
    assert_eq!((&messages[2]["content"][0]["is_error"], messages.as_array().unwrap().len()), (&true.into(), 5));
    assert_eq!(place.run(&["check", &session, "--repair"]).data()["repaired"], false, "once is enough");
}

#[test]
fn lines_of_other_programs_at_the_end_are_moved_aside() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", "before"]);
    let mut file = std::fs::OpenOptions::new().append(true).open(place.file(&session)).unwrap();
    file.write_all(b"{\"role\":\"user\",\"content\":\"fu{\"role\":\"user\"}\n").unwrap();
    place.run(&["append", "--session", &session, "--", "refused"]).failed(1, "E_INTEGRITY");
    assert_eq!(place.run(&["check", &session]).data()["fault_count"], 1);
    assert_eq!(place.run(&["check", &session, "--repair"]).data()["intact"], true);
    place.run(&["append", "--session", &session, "--", "after"]).data();
    assert_eq!(place.count(&session), 2);
    let kept = std::fs::read_dir(place.file(&session).parent().unwrap()).unwrap();
    assert!(kept.flatten().any(|entry| entry.file_name().to_str().unwrap().contains(".torn.")));
}
