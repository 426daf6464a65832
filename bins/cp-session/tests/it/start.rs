use std::os::unix::fs::PermissionsExt as _;

use crate::house::House;

#[test]
fn a_session_is_a_private_directory_with_three_ledgers_and_one_start() {
    let house = House::new();
    let data = house.run(&["start", "--mode", "isolated", "--tier", "ho2"]).data();
    let id = data["session_id"].as_str().unwrap();
    assert_eq!((id.len(), &id[..4]), (21, "SES-"));
    assert_eq!((&data["agent"], &data["mode"], &data["tier"]), (&"default".into(), &"isolated".into(), &"ho2".into()));
    let directory = house.root.path().join("planes/ho2/sessions").join(id);
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for name in ["session.jsonl", "ledger/exec.jsonl", "ledger/evidence.jsonl"] {
        assert_eq!(directory.join(name).metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let text = std::fs::read_to_string(directory.join("session.jsonl")).unwrap();
    assert_eq!(text.matches("\"event\":\"session_start\"").count(), 1);
    assert!(text.contains(data["receipt"]["hash"].as_str().unwrap()));
}

#[test]
fn a_dry_run_makes_nothing() {
    let house = House::new();
    assert_eq!(house.run(&["start", "--dry-run"]).data()["session_id"], serde_json::Value::Null);
    assert_eq!(std::fs::read_dir(house.root.path()).unwrap().count(), 0);
}

#[test]
fn the_same_request_starts_one_session() {
    let house = House::new();
    let first = house.run(&["start", "--request-id", "r1"]).data();
    assert_eq!(house.run(&["start", "--request-id", "r1"]).data(), first);
    house.run(&["start", "--request-id", "r1", "--mode", "isolated"]).failed(6, "E_CONFLICT");
}

#[test]
fn an_agent_that_nobody_made_is_named_with_the_nearest() {
    let house = House::new();
    let error = house.run(&["start", "--agent", "defualt"]).failed(3, "E_NOT_FOUND");
    assert_eq!(error["details"]["nearest"], "default");
    std::fs::create_dir_all(house.root.path().join("agents/ada")).unwrap();
    assert_eq!(house.run(&["start", "--agent", "ada"]).data()["agent"], "ada");
}

#[test]
fn a_tier_that_is_not_and_a_home_that_cannot_be_written_are_refused() {
    let house = House::new();
    house.run(&["start", "--tier", "ho9"]).failed(2, "E_USAGE");
    std::fs::write(house.root.path().join("file"), "").unwrap();
    house.run(&["start", "--home", "file/home"]).failed(1, "E_IO");
}
