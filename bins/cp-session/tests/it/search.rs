use crate::house::{House, message};

#[test]
fn turns_are_found_in_every_session_page_by_page() {
    let house = House::new();
    for n in 0..3 {
        let session = house.start();
        house.feed(&["tee", &session], &message(&format!("Where is the Harbour {n}?"), "by the sea"));
    }
    let first = house.run(&["search", "harbour", "--limit", "2"]).data();
    assert_eq!((&first["count"], &first["has_more"]), (&2.into(), &true.into()));
    assert!(first["items"][0]["snippet"].as_str().unwrap().contains("Harbour"));
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = house.run(&["search", "harbour", "--limit", "2", "--cursor", cursor]).data();
    assert_eq!((&second["count"], &second["has_more"]), (&1.into(), &false.into()));
    assert_ne!(second["items"][0]["session_id"], first["items"][1]["session_id"]);
}

#[test]
fn one_session_can_be_searched_and_nothing_is_no_failure() {
    let house = House::new();
    let (one, two) = (house.start(), house.start());
    house.run(&["append", "--session", &one, "--", "a tree"]);
    assert_eq!(house.run(&["search", "tree", "--session", &one]).data()["count"], 1);
    assert_eq!(house.run(&["search", "tree", "--session", &two]).data()["count"], 0);
    house.run(&["search", " "]).failed(2, "E_VALIDATION");
    house.run(&["search", "tree", "--cursor", "x"]).failed(2, "E_USAGE");
}
