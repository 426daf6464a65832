//! `cp-session export`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn export_summary_has_no_secrets() {
    let place = Sessions::new();
    let session = place.start();
    place.feed(&["tee", &session], message("my password=hunter2hunter", "noted"));
    let data = place.run(&["export", &session]).data();
    let text = std::fs::read_to_string(data["path"].as_str().unwrap()).unwrap();
    assert!(!text.contains("hunter2"));
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&summary["turn_count"], &summary["turns"][1]["text"]), (&2.into(), &"noted".into()));
    assert_eq!(place.entries(&session).last().unwrap()["event"], "session_export");
    assert_eq!(place.count(&session), 2);
}

#[test]
fn a_dry_run_writes_nothing() {
    let place = Sessions::new();
    let session = place.start();
    let data = place.run(&["export", &session, "--dry-run"]).data();
    assert!(!std::path::Path::new(data["path"].as_str().unwrap()).exists());
    place.run(&["export", "SES-nobody"]).failed(3, "E_NOT_FOUND");
}
