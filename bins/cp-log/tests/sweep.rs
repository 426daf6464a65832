//! Every verb that writes, with a fault at each of its system calls: what was acknowledged is there, and the next command completes.

use cp_testkit::Sweep;

use crate::ledgers::Ledgers;

/// A token that is not the one that was spent, as it would be in the same second. None if nothing is to be confirmed.
fn token(place: &Ledgers, arguments: &[&str], spent: &str) -> Option<String> {
    loop {
        let preview = place.run(&[arguments, &["--dry-run"]].concat()).success().data();
        let token = preview["confirm_token"].as_str()?.to_owned();
        if token != spent {
            return Some(token);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The next writer completes what was begun, and nothing is lost.
fn is_sound(place: &Ledgers, fault: &str) {
    let next = place.run(&["append", "-f", "l.jsonl", "--event", "after", "m"]);
    assert_eq!(next.status, 0, "{fault}: {next:?}");
    let verified = place.run(&["verify", "--complete", "l.jsonl"]);
    assert_eq!(verified.status, 0, "{fault}: {verified:?}");
    let ticks = place.run(&["query", "l.jsonl", "--event", "tick"]).success().closing();
    assert_eq!(ticks["data"]["count"], 3, "{fault}");
}

/// How many entries of the ledger have an event, and where the last is.
fn told(place: &Ledgers, event: &str) -> usize {
    let lines = place.run(&["query", "l.jsonl", "--event", event, "--format", "raw"]).stdout;
    lines.lines().filter(|line| line.contains(event)).count()
}

#[test]
fn appending() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 4);
    Sweep::new(&place, &["append", "-f", "l.jsonl", "--event", "new", "m"]).run(|done, fault| {
        is_sound(&place, fault);
        let there = told(&place, "new");
        assert!(there == 1 || there == 0 && done.status != 0, "{fault}: {done:?}");
    });
}

#[test]
fn rotating() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 4);
    Sweep::new(&place, &["rotate", "l.jsonl"]).run(|done, fault| {
        is_sound(&place, fault);
        let segment = place.path("l.00000000000000000000.jsonl");
        assert!(segment.exists() || done.status != 0, "{fault}: {done:?}");
        if segment.exists() {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(segment).unwrap().permissions().mode() & 0o777, 0o400, "{fault}");
        }
    });
}

#[test]
fn recovering() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 4);
    let mut bytes = place.work.bytes("l.jsonl");
    bytes.extend_from_slice(b"{\"seq\":9,\"ts\":\"2026");
    place.work.write("l.jsonl", bytes);
    Sweep::new(&place, &["append", "-f", "l.jsonl", "m"]).run(|_, fault| {
        is_sound(&place, fault);
        assert_eq!(told(&place, "ledger.recovered"), 1, "{fault}");
        assert!(!place.path("l.jsonl.recovering").exists(), "{fault}");
    });
}

#[test]
fn repairing() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 4);
    let mut bytes = place.work.bytes("l.jsonl");
    bytes.extend_from_slice(b"damaged\n");
    place.work.write("l.jsonl", bytes);
    let verb = ["repair", "--tail", "l.jsonl"];
    let confirmed = token(&place, &verb, "").unwrap();
    Sweep::new(&place, &[&verb[..], &["--confirm", &confirmed]].concat()).run(|_, fault| {
        if let Some(again) = token(&place, &verb, &confirmed) {
            place.run(&[&verb[..], &["--confirm", &again]].concat()).success();
        }
        is_sound(&place, fault);
        assert_eq!(told(&place, "ledger.recovered"), 1, "{fault}");
    });
}

#[test]
fn accepting_a_rollback() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 4);
    place.lines(&["keygen", "K"], "");
    let short = place.work.bytes("l.jsonl");
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    place.work.write("l.jsonl", short);
    assert_eq!(place.run(&["append", "-f", "l.jsonl", "m"]).error()["code"], "E_INTEGRITY");
    let verb = ["repair", "--accept-shorter", "l.jsonl"];
    let confirmed = token(&place, &verb, "").unwrap();
    Sweep::new(&place, &[&verb[..], &["--confirm", &confirmed]].concat()).run(|done, fault| {
        // Without the intent on the ledger nothing was done, and nothing goes on without it.
        let meant = place.stored("l.jsonl").iter().any(|line| line["event"] == "ledger.rollback");
        if !meant {
            assert_ne!(done.status, 0, "{fault}: {done:?}");
            assert!(place.path("l.checkpoint").exists(), "{fault}");
            let again = token(&place, &verb, &confirmed).unwrap();
            place.run(&[&verb[..], &["--confirm", &again]].concat()).success();
        }
        is_sound(&place, fault);
        let lines = place.stored("l.jsonl");
        let at = |event: &str| lines.iter().position(|line| line["event"] == event);
        assert!(at("ledger.rollback") < at("ledger.rolled_back"), "{fault}");
        let aside = lines[at("ledger.rolled_back").unwrap()]["data"]["checkpoint"].as_str().unwrap().to_owned();
        assert!(place.path(&aside).exists() && !place.path("l.checkpoint").exists(), "{fault}");
    });
}

#[test]
fn signing() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 4);
    place.lines(&["keygen", "K"], "");
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    let before = place.work.read("l.checkpoint");
    Sweep::new(&place, &["checkpoint", "-f", "l.jsonl", "--sign-with", "K"]).run(|done, fault| {
        let after = place.work.read("l.checkpoint");
        assert!(after != before || done.status != 0, "{fault}: {done:?}");
        // What is signed is on the ledger, whatever came after.
        let root = after.lines().nth(2).unwrap().to_owned();
        assert!(place.stored("l.jsonl").iter().any(|line| line["data"]["root"] == root), "{fault}");
        place.run(&["verify", "--trust", "K.pub", "l.jsonl"]).success();
        is_sound(&place, fault);
        place.run(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"]).success();
    });
}
