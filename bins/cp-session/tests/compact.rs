//! `cp-session compact`, as a shell user meets it.

use cp_testkit::Fake;

use crate::sessions::{Sessions, message};

fn talked(place: &Sessions) -> String {
    let session = place.start();
    for (q, a) in [("q1", "a1"), ("q2", "a2"), ("q3", "a3")] {
        place.feed(&["tee", &session], message(q, a));
    }
    session
}

#[test]
fn the_summary_stands_for_the_older_turns_and_they_stay_on_disk() {
    let place = Sessions::new();
    let session = talked(&place);
    place.install("cp-session");
    let model = Fake::printing(&place, "cp-llm", message("x", "they said q1 and q2").trim_end());
    let data = place.run(&["compact", &session, "--keep", "2"]).data();
    assert_eq!((&data["turns"], &data["summary"]), (&4.into(), &"they said q1 and q2".into()), "{data}");
    let asked = model.last_call().input;
    assert!(asked.contains("user: q1") && asked.contains("assistant: a2") && !asked.contains("q3"));
    let text = place.run(&["load", &session, "--format", "text"]).stdout;
    assert_eq!(
        text,
        "user: Summarise our conversation so far.\nassistant: they said q1 and q2\nuser: q3\nassistant: a3\n"
    );
    assert_eq!(place.count(&session), 6);
    place.feed(&["tee", &session], message("q4", "a4"));
    assert_eq!(place.run(&["load", &session]).data()["count"], 6);
    assert_eq!(place.run(&["load", &session, "--last", "3"]).data()["has_more"], true);
}

#[test]
fn a_failing_model_leaves_the_session_as_it_was() {
    let place = Sessions::new();
    let session = talked(&place);
    let line = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_RATE_LIMITED","message":"slow down","details":{},"retryable":true},"meta":{"duration_ms":1}}"#;
    place.install("cp-session");
    Fake::printing(&place, "cp-llm", line);
    place.run(&["compact", &session, "--keep", "2"]).code(7);
    assert_eq!(place.run(&["load", &session]).data()["count"], 6);
    place.run(&["compact", &session, "--keep", "10"]).code(2);
    assert_eq!(place.run(&["compact", &session, "--keep", "2", "--dry-run"]).data()["turns"], 4);
}
