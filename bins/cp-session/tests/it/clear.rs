use crate::house::{House, message};

#[test]
fn the_turns_are_archived_and_the_session_begins_again() {
    let house = House::new();
    let session = house.run(&["start", "--mode", "isolated"]).data()["session_id"].as_str().unwrap().to_owned();
    house.feed(&["tee", &session], &message("old", "answer"));
    let data = house.run(&["clear", &session]).data();
    assert_eq!(data["turns"], 2);
    assert!(std::fs::read_to_string(data["archive"].as_str().unwrap()).unwrap().contains("\"old\""));
    assert_eq!(house.count(&session), 0);
    assert_eq!(house.run(&["load", &session]).data()["mode"], "isolated");
    house.feed(&["tee", &session], &message("new", "answer"));
    assert_eq!(house.run(&["load", &session, "--format", "text"]).stdout, "user: new\nassistant: answer\n");
}

#[test]
fn a_dry_run_clears_nothing_and_an_ended_session_stays() {
    let house = House::new();
    let session = house.start();
    house.run(&["append", "--session", &session, "--", "x"]);
    assert_eq!(house.run(&["clear", &session, "--dry-run"]).data()["turns"], 1);
    assert_eq!(house.count(&session), 1);
    house.run(&["end", &session]);
    house.run(&["clear", &session]).failed(6, "E_CONFLICT");
}
