//! `cp-session delete`, as a shell user meets it.

use crate::sessions::Sessions;

#[test]
fn one_token_deletes_what_was_shown_once() {
    let place = Sessions::new();
    let (one, two, kept) = (place.start(), place.start(), place.start());
    place.run(&["delete", &one, &two]).failed(5, "E_CONFIRMATION_REQUIRED");
    place.run(&["delete", &one, "--dangerous"]).failed(5, "E_CONFIRMATION_REQUIRED");
    let dry = ["delete", &one, "--ids", &two, &one, "--dangerous", "--dry-run"];
    let preview = place.run(&dry).data();
    assert_eq!(preview["preview"]["changes"].as_array().unwrap().len(), 2);
    let token = preview["confirm_token"].as_str().unwrap();
    place.run(&["delete", &kept, "--dangerous", "--confirm", token]).failed(6, "E_CONFLICT");
    let names = format!("{one},{two}");
    let data = place.run(&["delete", "--ids", &names, "--dangerous", "--confirm", token]).data();
    assert_eq!(data["summary"]["succeeded"], 2);
    assert_eq!(place.run(&["list"]).data()["count"], 1);
    place.run(&["delete", "--ids", &names, "--dangerous", "--confirm", token]).failed(6, "E_CONFLICT");
}

#[test]
fn a_session_that_changed_since_it_was_shown_stays() {
    let place = Sessions::new();
    let session = place.start();
    let token = place.run(&["delete", &session, "--dangerous", "--dry-run"]).data()["confirm_token"].clone();
    place.run(&["append", "--session", &session, "--", "new"]);
    place.run(&["delete", &session, "--dangerous", "--confirm", token.as_str().unwrap()]).failed(6, "E_CONFLICT");
    assert_eq!(place.count(&session), 1);
    place.run(&["delete", "--dangerous"]).failed(2, "E_VALIDATION");
}
