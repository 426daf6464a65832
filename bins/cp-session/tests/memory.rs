//! `cp-session remember` and `cp-session recall`, as a shell user meets them.

use crate::sessions::Sessions;

#[test]
fn what_is_remembered_is_recalled_newest_first() {
    let place = Sessions::new();
    for text in ["tea is bought on Mondays, green tea too", "the build needs clang", "The user likes green tea"] {
        place.run(&["remember", "--kind", "note", "--", text]).data();
    }
    let data = place.run(&["recall", "--kind", "note", "which green tea on mondays?"]).data();
    let texts: Vec<&str> =
        data["items"].as_array().unwrap().iter().map(|item| item["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["The user likes green tea", "tea is bought on Mondays, green tea too"]);
    let page = place.run(&["recall", "--kind", "note", "--limit", "1"]).data();
    assert_eq!(page["items"][0]["text"], "The user likes green tea");
    let next = page["next_cursor"].as_str().unwrap();
    assert_eq!(place.run(&["recall", "--kind", "note", "--cursor", next]).data()["count"], 2);
}

#[test]
fn secrets_are_not_remembered_and_the_session_is() {
    let place = Sessions::new();
    let session = place.start();
    let data =
        place.feed(&["remember", "--kind", "session_turn", "--session", &session], "password=hunter2hunter\n").data();
    assert_eq!((&data["session_id"], &data["redactions"]), (&session.as_str().into(), &1.into()));
    assert!(!place.home.read("memory/session_turn.jsonl").contains("hunter2"));
}

#[test]
fn unknown_memory_kind_is_reported() {
    let place = Sessions::new();
    place.run(&["remember", "--kind", "../x", "--", "y"]).failed(2, "E_VALIDATION");
    assert_eq!(place.run(&["recall", "--kind", "session_turn"]).data()["count"], 0);
    place.run(&["recall", "--kind", "note"]).failed(3, "E_NOT_FOUND");
    place.run(&["remember", "--kind", "note", "--", "y"]).data();
    assert_eq!(place.run(&["recall", "--kind", "notes"]).failed(3, "E_NOT_FOUND")["details"]["nearest"], "note");
}

#[test]
fn nothing_is_recalled_by_accident() {
    let place = Sessions::new();
    for text in ["my wife has an appointment", "the deploy failed on monday", "deploy at noon", "東京の天気はいい"]
    {
        place.run(&["remember", "--kind", "note", "--", text]).data();
    }
    let count = |query: &str| place.run(&["recall", "--kind", "note", "--", query]).data()["count"].as_u64().unwrap();
    for (query, found) in [
        ("hi", 0),
        ("how are you?", 0),
        ("und wie ist das", 0),
        ("noon", 1),
        ("when is the appointment of my wife?", 1),
        ("東京は?", 1),
        ("why did the deploy fail?", 2),
    ] {
        assert_eq!(count(query), found, "{query}");
    }
}
