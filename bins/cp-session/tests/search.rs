//! `cp-session search`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn turns_are_found_in_every_session_page_by_page() {
    let place = Sessions::new();
    for n in 0..3 {
        let session = place.start();
        place.feed(&["tee", &session], message(&format!("Where is the Harbour {n}?"), "by the sea"));
    }
    let first = place.run(&["search", "harbour", "--limit", "2"]).data();
    assert_eq!((&first["count"], &first["has_more"]), (&2.into(), &true.into()));
    assert!(first["items"][0]["snippet"].as_str().unwrap().contains("Harbour"));
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = place.run(&["search", "harbour", "--limit", "2", "--cursor", cursor]).data();
    assert_eq!((&second["count"], &second["has_more"]), (&1.into(), &false.into()));
    assert_ne!(second["items"][0]["session_id"], first["items"][1]["session_id"]);
}

#[test]
fn one_session_can_be_searched_and_nothing_is_no_failure() {
    let place = Sessions::new();
    let (one, two) = (place.start(), place.start());
    place.run(&["append", "--session", &one, "--", "a tree"]);
    assert_eq!(place.run(&["search", "tree", "--session", &one]).data()["count"], 1);
    assert_eq!(place.run(&["search", "tree", "--session", &two]).data()["count"], 0);
    place.run(&["search", " "]).failed(2, "E_VALIDATION");
    place.run(&["search", "tree", "--cursor", "x"]).failed(2, "E_VALIDATION");
}

#[test]
fn search_folds_case_of_text_and_query_alike() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", "Meet in İstanbul on Friday"]);
    for query in ["İstanbul", "istanbul", "ISTANBUL", "friday"] {
        assert_eq!(place.run(&["search", query]).data()["count"], 1, "{query}");
    }
}
