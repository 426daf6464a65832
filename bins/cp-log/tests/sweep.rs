//! Every verb that writes, with a fault at each of its system calls: what was acknowledged is there, what was forgotten is gone, and the
//! next command completes.

use cp_testkit::{Outcome, Sweep};
use serde_json::Value;

use crate::ledgers::Ledgers;

/// A ledger with two values sealed, the second forgotten: their hashes.
fn with_sealed(place: &Ledgers) -> [String; 2] {
    place.ledger("l.jsonl", 4);
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message"], "kept\ngone\n");
    let [.., kept, gone] = place.stored("l.jsonl").try_into().unwrap_or_else(|lines: Vec<Value>| {
        let [.., a, b] = &lines[..] else { panic!("{lines:?}") };
        [a.clone(), b.clone()]
    });
    let hashes = [kept, gone].map(|line| line["message"]["$sealed"].as_str().unwrap().to_owned());
    forget(place, &hashes[1], "").success();
    hashes
}

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

fn forget(place: &Ledgers, hash: &str, spent: &str) -> Outcome {
    let verb = ["forget", "-f", "l.jsonl", "--dangerous", hash];
    let token = token(place, &verb, spent).unwrap();
    place.run(&[&verb[..], &["--confirm", &token]].concat())
}

/// The next writer completes what was begun, and nothing is lost and nothing back.
fn is_sound(place: &Ledgers, [kept, gone]: &[String; 2], fault: &str) {
    let next = place.run(&["append", "-f", "l.jsonl", "--event", "after", "m"]);
    assert_eq!(next.status, 0, "{fault}: {next:?}");
    let verified = place.run(&["verify", "--complete", "l.jsonl"]);
    assert_eq!(verified.status, 0, "{fault}: {verified:?}");
    let ticks = place.run(&["query", "l.jsonl", "--event", "tick"]).success().closing();
    assert_eq!(ticks["data"]["count"], 3, "{fault}");
    assert_eq!(place.run(&["reveal", "-f", "l.jsonl", kept]).success().data()["value"], "kept", "{fault}");
    assert_eq!(place.run(&["reveal", "-f", "l.jsonl", gone]).status, 3, "{fault}");
}

/// How many entries of the ledger have an event, and where the last is.
fn told(place: &Ledgers, event: &str) -> usize {
    let lines = place.run(&["query", "l.jsonl", "--event", event, "--format", "raw"]).stdout;
    lines.lines().filter(|line| line.contains(event)).count()
}

#[test]
fn appending() {
    let place = Ledgers::new();
    let hashes = with_sealed(&place);
    Sweep::new(&place, &["append", "-f", "l.jsonl", "--event", "new", "m"]).run(|done, fault| {
        is_sound(&place, &hashes, fault);
        let there = told(&place, "new");
        assert!(there == 1 || there == 0 && done.status != 0, "{fault}: {done:?}");
    });
}

#[test]
fn sealing() {
    let place = Ledgers::new();
    let hashes = with_sealed(&place);
    Sweep::new(&place, &["append", "-f", "l.jsonl", "--event", "new", "--seal", "message", "private"]).run(
        |done, fault| {
            is_sound(&place, &hashes, fault);
            let lines = place.stored("l.jsonl");
            let new: Vec<_> = lines.iter().filter(|line| line["event"] == "new").collect();
            assert!(!new.is_empty() || done.status != 0, "{fault}: {done:?}");
            // A line that is there has its value, whether it was acknowledged or not.
            for line in new {
                let hash = line["message"]["$sealed"].as_str().unwrap();
                assert_eq!(
                    place.run(&["reveal", "-f", "l.jsonl", hash]).success().data()["value"],
                    "private",
                    "{fault}"
                );
            }
            for name in ["l.jsonl", "l.jsonl.vault", "l.jsonl.vault.keys"] {
                let bytes = place.work.bytes(name);
                assert!(!bytes.windows(7).any(|window| window == b"private"), "{fault}: {name}");
            }
        },
    );
}

#[test]
fn forgetting() {
    let place = Ledgers::new();
    let hashes = with_sealed(&place);
    place.lines(&["append", "-f", "l.jsonl", "--seal", "message"], "target\n");
    let target = place.stored("l.jsonl").last().unwrap()["message"]["$sealed"].as_str().unwrap().to_owned();
    let verb = ["forget", "-f", "l.jsonl", "--dangerous", &target];
    let token = token(&place, &verb, "").unwrap();
    Sweep::new(&place, &[&verb[..], &["--confirm", &token]].concat()).run(|done, fault| {
        is_sound(&place, &hashes, fault);
        let (meant, forgotten) = (told(&place, "ledger.forget\""), told(&place, "ledger.forgotten"));
        let revealed = place.run(&["reveal", "-f", "l.jsonl", &target]);
        assert!(revealed.status == 3 || done.status != 0, "{fault}: {revealed:?}");
        // Every deleted value has its intent and its result on the ledger, and every intent is completed once another command has run.
        assert_eq!(revealed.status == 3, meant > 0 || forgotten > 1, "{fault}");
        assert_eq!(revealed.status == 3, forgotten > 1, "{fault}: {forgotten}");
        if revealed.status == 0 {
            let again = forget(&place, &target, &token);
            assert_eq!(again.status, 0, "{fault}: {again:?}");
        }
        if fault == "none" {
            is_sound(&place, &[hashes[0].clone(), target.clone()], "at the end");
        }
    });
}

#[test]
fn rotating() {
    let place = Ledgers::new();
    let hashes = with_sealed(&place);
    Sweep::new(&place, &["rotate", "l.jsonl"]).run(|done, fault| {
        is_sound(&place, &hashes, fault);
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
    let hashes = with_sealed(&place);
    let mut bytes = place.work.bytes("l.jsonl");
    bytes.extend_from_slice(b"{\"seq\":9,\"ts\":\"2026");
    place.work.write("l.jsonl", bytes);
    Sweep::new(&place, &["append", "-f", "l.jsonl", "m"]).run(|_, fault| {
        is_sound(&place, &hashes, fault);
        assert_eq!(told(&place, "ledger.recovered"), 1, "{fault}");
        assert!(!place.path("l.jsonl.recovering").exists(), "{fault}");
    });
}

#[test]
fn repairing() {
    let place = Ledgers::new();
    let hashes = with_sealed(&place);
    let mut bytes = place.work.bytes("l.jsonl");
    bytes.extend_from_slice(b"damaged\n");
    place.work.write("l.jsonl", bytes);
    let verb = ["repair", "--tail", "l.jsonl"];
    let confirmed = token(&place, &verb, "").unwrap();
    Sweep::new(&place, &[&verb[..], &["--confirm", &confirmed]].concat()).run(|_, fault| {
        if let Some(again) = token(&place, &verb, &confirmed) {
            place.run(&[&verb[..], &["--confirm", &again]].concat()).success();
        }
        is_sound(&place, &hashes, fault);
        assert_eq!(told(&place, "ledger.recovered"), 1, "{fault}");
    });
}

#[test]
fn accepting_a_rollback() {
    let place = Ledgers::new();
    let hashes = with_sealed(&place);
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
        is_sound(&place, &hashes, fault);
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
    let hashes = with_sealed(&place);
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
        is_sound(&place, &hashes, fault);
        place.run(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"]).success();
    });
}
