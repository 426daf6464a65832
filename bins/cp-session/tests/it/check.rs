use std::io::Write as _;

use crate::house::{House, message};

fn with_open_call(house: &House) -> String {
    let session = house.start();
    let call = message("what time is it?", "let me look")
        .replace("\"tool_calls\":[]", "\"tool_calls\":[{\"id\":\"t1\",\"name\":\"clock\",\"input\":{}}]");
    house.feed(&["tee", &session], &call);
    house.feed(&["tee", &session], &message("never mind", "fine"));
    session
}

#[test]
fn a_whole_session_is_intact() {
    let house = House::new();
    let session = house.start();
    house.feed(&["tee", &session], &message("a", "b"));
    let data = house.run(&["check", &session, "--strict-exit"]).data();
    assert_eq!((&data["intact"], &data["fault_count"]), (&true.into(), &0.into()));
}

#[test]
fn an_open_tool_call_is_found_and_gets_a_result_in_its_place() {
    let house = House::new();
    let session = with_open_call(&house);
    let data = house.run(&["check", &session]).data();
    assert_eq!((&data["intact"], &data["open_calls"][0]["id"]), (&false.into(), &"t1".into()));
    house.run(&["check", &session, "--strict-exit"]).failed(1, "E_INTEGRITY");
    assert_eq!(house.run(&["check", &session, "--repair", "--dry-run"]).data()["repaired"], false);
    let data = house.run(&["check", &session, "--repair"]).data();
    assert_eq!((&data["repaired"], &data["intact"]), (&true.into(), &true.into()));
    let messages = house.run(&["load", &session]).data()["messages"].clone();
    assert_eq!(messages[2]["content"][0]["tool_use_id"], "t1");
    assert_eq!((&messages[2]["content"][0]["is_error"], messages.as_array().unwrap().len()), (&true.into(), 5));
    assert_eq!(house.run(&["check", &session, "--repair"]).data()["repaired"], false, "once is enough");
}

#[test]
fn lines_of_other_programs_at_the_end_are_moved_aside() {
    let house = House::new();
    let session = house.start();
    house.run(&["append", "--session", &session, "--", "before"]);
    let mut file = std::fs::OpenOptions::new().append(true).open(house.file(&session)).unwrap();
    file.write_all(b"{\"role\":\"user\",\"content\":\"fu{\"role\":\"user\"}\n").unwrap();
    house.run(&["append", "--session", &session, "--", "refused"]).failed(1, "E_INTEGRITY");
    assert_eq!(house.run(&["check", &session]).data()["fault_count"], 1);
    assert_eq!(house.run(&["check", &session, "--repair"]).data()["intact"], true);
    house.run(&["append", "--session", &session, "--", "after"]).data();
    assert_eq!(house.count(&session), 2);
    let kept = std::fs::read_dir(house.file(&session).parent().unwrap()).unwrap();
    assert!(kept.flatten().any(|entry| entry.file_name().to_str().unwrap().contains(".torn.")));
}
