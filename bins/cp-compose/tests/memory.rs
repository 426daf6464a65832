//! `--memory`: recalled memories.

use cp_testkit::Place;

use crate::session::session_prints;

#[test]
fn memories_precede_text_and_are_accounted() {
    let place = Place::of("cp-compose");
    let session = session_prints(
        &place,
        r#"{"ok":true,"schema_version":"1.0","data":{"items":[{"text":"likes tea"}],"count":1,"has_more":false},"meta":{"duration_ms":1}}"#,
    );
    let data = place.run(&["--memory", "taste", "--", "tea or coffee?"]).data();
    let content = data["messages"][0]["content"].as_str().unwrap();
    assert!(content.contains("likes tea") && content.ends_with("tea or coffee?"));
    assert_eq!(data["_untrusted"][0], "/messages");
    let call = session.last_call().arguments;
    assert!(call.starts_with("recall ") && call.contains("--kind taste"), "{call}");
}
