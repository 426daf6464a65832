//! `--session`: the history of a conversation from a stub of cp-session.

use cp_testkit::{Fake, Place};

const LOADED: &str = include_str!("data/loaded.json");

/// Creates a stub of cp-session beside the program.
pub(crate) fn session_prints(place: &Place, line: &str) -> Fake {
    place.install("cp-compose");
    Fake::printing(place, "cp-session", line.trim_end())
}

#[test]
fn history_comes_first_and_begins_with_question() {
    let place = Place::of("cp-compose");
    let session = session_prints(&place, LOADED);
    let data = place.run(&["--session", "SES-1", "--last", "3", "--", "and then?"]).data();
    assert_eq!(data["messages"].as_array().unwrap().len(), 3);
    assert_eq!((&data["history"], &data["session_id"]), (&2.into(), &"SES-1".into()));
    assert_eq!(data["report"]["dropped"][0]["count"], 1);
    let called = session.last_call().arguments;
    assert!(
        called.starts_with("load ") && called.contains("--session SES-1") && called.contains("--last 3"),
        "{called}"
    );
}

#[test]
fn isolated_mode_omits_history() {
    let place = Place::of("cp-compose");
    let session = session_prints(&place, &LOADED.replace("persistent", "isolated"));
    let data = place.run(&["--session", "SES-1", "--", "x"]).data();
    assert_eq!((data["messages"].as_array().unwrap().len(), &data["session_id"]), (1, &"SES-1".into()));
    let data = place.run(&["--session", "SES-1", "--mode", "persistent", "--", "x"]).data();
    assert_eq!(data["history"], 2);
    place.run(&["--session", "SES-1", "--mode", "isolated", "--", "x"]).data();
    assert!(session.last_call().arguments.contains("--last 0"));
}

#[test]
fn cp_session_failure_is_passed_on() {
    let place = Place::of("cp-compose");
    session_prints(
        &place,
        r#"{"ok":false,"schema_version":"1.0","error":{"code":"E_NOT_FOUND","message":"no session `SES-2`","details":{"nearest":"SES-1","hint":"did you mean `SES-1`?"},"retryable":false},"meta":{"duration_ms":1}}"#,
    );
    let error = place.run(&["--session", "SES-2", "--", "x"]).failed(3, "E_NOT_FOUND");
    assert_eq!(error["details"]["nearest"], "SES-1");
    session_prints(&place, "no answer");
    place.run(&["--session", "SES-1", "--", "x"]).failed(1, "E_IO");
}

#[test]
fn answer_blocks_are_kept() {
    let place = Place::of("cp-compose");
    let blocks =
        r#"[{"type":"text","text":"b","origin":{"endpoint":"e","dialect":"gemini"},"raw":{"text":"b","n":1e2}}]"#;
    let with = format!(r#"{{"role":"assistant","content":"b","blocks":{blocks}}}"#);
    session_prints(&place, &LOADED.replace(r#"{"role":"assistant","content":"b"}"#, &with));
    let ran = place.run(&["--session", "SES-1", "--", "x"]);
    assert!(ran.stdout.contains(&with), "{}", ran.stdout);
}
