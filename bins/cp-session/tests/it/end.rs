use crate::house::{House, message};

#[test]
fn a_session_ends_once() {
    let house = House::new();
    let session = house.start();
    house.feed(&["tee", &session], &message("q", "a"));
    let first = house.run(&["end", &session]).data();
    assert_eq!((&first["turns"], &first["already"]), (&2.into(), &false.into()));
    let again = house.run(&["end", &session]).data();
    assert_eq!((&again["already"], &again["receipt"]), (&true.into(), &first["receipt"]));
    assert_eq!(house.entries(&session).iter().filter(|entry| entry["event"] == "session_end").count(), 1);
}

#[test]
fn nothing_is_added_after_the_end() {
    let house = House::new();
    let session = house.start();
    house.run(&["end", &session]);
    house.run(&["append", "--session", &session, "--", "x"]).failed(6, "E_CONFLICT");
    house.feed(&["tee", &session], &message("q", "a")).failed(6, "E_CONFLICT");
    assert_eq!(house.count(&session), 0);
}

#[test]
fn a_dry_run_ends_nothing() {
    let house = House::new();
    let session = house.start();
    house.run(&["end", &session, "--dry-run"]).data();
    assert_eq!(house.run(&["show", &session]).data()["ended"], false);
}
