use crate::house::{House, message};

#[test]
fn the_summary_tells_what_was_said_without_secrets() {
    let house = House::new();
    let session = house.start();
    house.feed(&["tee", &session], &message("my password=hunter2hunter", "noted"));
    let data = house.run(&["export", &session]).data();
    let text = std::fs::read_to_string(data["path"].as_str().unwrap()).unwrap();
    assert!(!text.contains("hunter2"));
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&summary["turn_count"], &summary["turns"][1]["text"]), (&2.into(), &"noted".into()));
    assert_eq!(house.entries(&session).last().unwrap()["event"], "session_export");
    assert_eq!(house.count(&session), 2);
}

#[test]
fn a_dry_run_writes_nothing() {
    let house = House::new();
    let session = house.start();
    let data = house.run(&["export", &session, "--dry-run"]).data();
    assert!(!std::path::Path::new(data["path"].as_str().unwrap()).exists());
    house.run(&["export", "SES-nobody"]).failed(3, "E_NOT_FOUND");
}
