use crate::house::{House, message};

#[test]
fn a_fork_begins_with_the_first_turns_and_goes_its_own_way() {
    let house = House::new();
    let session = house.start();
    house.feed(&["tee", &session], &message("a", "b"));
    house.feed(&["tee", &session], &message("c", "d"));
    let data = house.run(&["fork", &session, "--at", "2"]).data();
    assert_eq!(data["forked_from"], serde_json::json!({"session_id": session, "turns": 2}));
    let fork = data["session_id"].as_str().unwrap();
    assert_eq!(house.run(&["load", fork, "--format", "text"]).stdout, "user: a\nassistant: b\n");
    house.run(&["append", "--session", fork, "--", "x"]).data();
    assert_eq!((house.count(fork), house.count(&session)), (3, 4));
    assert_eq!(house.run(&["fork", &session]).data()["forked_from"]["turns"], 4);
}

#[test]
fn a_turn_that_is_not_there_is_refused_and_makes_no_session() {
    let house = House::new();
    let session = house.start();
    house.run(&["fork", &session, "--at", "1"]).failed(2, "E_VALIDATION");
    assert!(house.run(&["fork", &session, "--dry-run"]).data()["session_id"].is_null());
    assert_eq!(house.run(&["list"]).data()["count"], 1);
}
