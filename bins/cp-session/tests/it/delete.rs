use crate::house::House;

#[test]
fn one_token_deletes_what_was_shown_once() {
    let house = House::new();
    let (one, two, kept) = (house.start(), house.start(), house.start());
    house.run(&["delete", &one, &two]).failed(5, "E_CONFIRMATION_REQUIRED");
    house.run(&["delete", &one, "--dangerous"]).failed(5, "E_CONFIRMATION_REQUIRED");
    let dry = ["delete", &one, "--ids", &two, &one, "--dangerous", "--dry-run"];
    let preview = house.run(&dry).data();
    assert_eq!(preview["preview"]["changes"].as_array().unwrap().len(), 2);
    let token = preview["confirm_token"].as_str().unwrap();
    house.run(&["delete", &kept, "--dangerous", "--confirm", token]).failed(6, "E_CONFLICT");
    let names = format!("{one},{two}");
    let data = house.run(&["delete", "--ids", &names, "--dangerous", "--confirm", token]).data();
    assert_eq!(data["summary"]["succeeded"], 2);
    assert_eq!(house.run(&["list"]).data()["count"], 1);
    house.run(&["delete", "--ids", &names, "--dangerous", "--confirm", token]).failed(3, "E_NOT_FOUND");
}

#[test]
fn a_session_that_changed_since_it_was_shown_stays() {
    let house = House::new();
    let session = house.start();
    let token = house.run(&["delete", &session, "--dangerous", "--dry-run"]).data()["confirm_token"].clone();
    house.run(&["append", "--session", &session, "--", "new"]);
    house.run(&["delete", &session, "--dangerous", "--confirm", token.as_str().unwrap()]).failed(6, "E_CONFLICT");
    assert_eq!(house.count(&session), 1);
    house.run(&["delete", "--dangerous"]).failed(2, "E_VALIDATION");
}
