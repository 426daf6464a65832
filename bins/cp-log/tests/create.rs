//! `cp-log create`, as a shell user meets it.

use crate::ledgers::Ledgers;

#[test]
fn a_named_ledger_is_signed_and_proved_under_its_name() {
    let place = Ledgers::new();
    let key = place.lines(&["keygen", "K", "--signer", "example.com/key"], "").remove(0);
    let begun =
        place.lines(&["create", "--ledger-name", "example.com/audit", "--trust", "K.pub", "l.jsonl"], "").remove(0);
    assert_eq!(begun["data"]["origin"], "example.com/audit");
    let first = place.stored("l.jsonl").remove(0);
    assert_eq!(first["data"]["origin"], "example.com/audit");
    assert_eq!(first["data"]["verifier"], key["data"]["verifier"]);
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    place.lines(&["verify", "--trust", "K.pub", "l.jsonl"], "");
    let note = place.work.read("l.checkpoint");
    assert_eq!(note.lines().next(), Some("example.com/audit"));
}

#[test]
fn create_refuses_existing_file() {
    let place = Ledgers::with(2);
    place.work.write("notes", "mine");
    for file in ["l.jsonl", "notes"] {
        let before = std::fs::read(place.path(file)).unwrap();
        for arguments in [&["create", file][..], &["create", "--dry-run", file]] {
            assert_eq!(place.closing(arguments, "", 6)["error"]["code"], "E_CONFLICT");
            assert_eq!(std::fs::read(place.path(file)).unwrap(), before);
        }
    }
}

#[test]
fn a_name_is_drawn_if_none_is_given_and_one_that_a_checkpoint_cannot_carry_is_refused() {
    let place = Ledgers::new();
    let origin = |file: &str| place.lines(&["create", file], "").remove(0)["data"]["origin"].clone();
    let (one, two) = (origin("a.jsonl"), origin("b.jsonl"));
    assert!(one.as_str().unwrap().starts_with("cp-ledger/") && one != two);
    assert_eq!(place.closing(&["create", "--ledger-name", "two words", "l.jsonl"], "", 2)["error"]["code"], "E_USAGE");
}
