//! `cp-log create`, as a shell user meets it.

use crate::at::At;

#[test]
fn a_named_ledger_is_signed_and_proved_under_its_name() {
    let at = At::new();
    let key = at.lines(&["keygen", "K", "--name", "example.com/key"], "").remove(0);
    let begun = at.lines(&["create", "--name", "example.com/audit", "--key", "K.pub", "l.jsonl"], "").remove(0);
    assert_eq!(begun["data"]["origin"], "example.com/audit");
    let first = at.stored("l.jsonl").remove(0);
    assert_eq!(first["data"]["origin"], "example.com/audit");
    assert_eq!(first["data"]["verifier"], key["data"]["verifier"]);
    at.lines(&["append", "-f", "l.jsonl", "m"], "");
    at.lines(&["checkpoint", "-f", "l.jsonl", "--key", "K"], "");
    at.lines(&["verify", "--key", "K.pub", "l.jsonl"], "");
    let note = std::fs::read_to_string(at.path("l.checkpoint")).unwrap();
    assert_eq!(note.lines().next(), Some("example.com/audit"));
}

#[test]
fn without_a_name_one_is_drawn() {
    let at = At::new();
    let origin = |file: &str| at.lines(&["create", file], "").remove(0)["data"]["origin"].clone();
    let (one, two) = (origin("a.jsonl"), origin("b.jsonl"));
    assert!(one.as_str().unwrap().starts_with("cp-ledger/") && one != two);
}

#[test]
fn what_is_there_is_left_alone() {
    let at = At::new();
    at.ledger("l.jsonl", 2);
    std::fs::write(at.path("notes"), "mine").unwrap();
    for file in ["l.jsonl", "notes"] {
        let before = std::fs::read(at.path(file)).unwrap();
        for arguments in [&["create", file][..], &["create", "--dry-run", file]] {
            assert_eq!(at.closing(arguments, "", 6)["error"]["code"], "E_CONFLICT");
            assert_eq!(std::fs::read(at.path(file)).unwrap(), before);
        }
    }
}

#[test]
fn a_name_that_a_checkpoint_cannot_carry_is_refused_and_a_dry_run_makes_nothing() {
    let at = At::new();
    assert_eq!(at.closing(&["create", "--name", "two words", "l.jsonl"], "", 2)["error"]["code"], "E_USAGE");
    at.lines(&["create", "--name", "a/b", "--dry-run", "l.jsonl"], "");
    assert!(!at.path("l.jsonl").exists());
}
