//! `cp-session show`, as a shell user meets it.

use crate::sessions::Sessions;

#[test]
fn show_prints_state_and_path() {
    let place = Sessions::new();
    let session = place.start();
    place.run(&["append", "--session", &session, "--", "x"]);
    let data = place.run(&["show", &session]).data();
    assert_eq!(data["path"], place.file(&session).to_str().unwrap());
    assert_eq!((&data["turns"], &data["ended"], &data["tier"]), (&1.into(), &false.into(), &"ho1".into()));
    assert!(data["started_at"].as_str().unwrap() <= data["updated_at"].as_str().unwrap());
    place.run(&["show", "SES-nobody"]).failed(3, "E_NOT_FOUND");
}
