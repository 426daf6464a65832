//! `cp-log rotate`: one chain over many files, whatever step a crash comes after.

use std::os::unix::fs::PermissionsExt;

use crate::ledgers::Ledgers;

const FIRST: &str = "l.00000000000000000000.jsonl";

#[test]
fn the_chain_goes_on_in_a_new_file() {
    let place = Ledgers::with(5);
    let rotated = place.closing(&["rotate", "l.jsonl"], "", 0);
    assert!(rotated["data"]["segment"].as_str().unwrap().ends_with(FIRST));
    place.lines(&["append", "-f", "l.jsonl", "--event", "after", "m"], "");
    assert_eq!(std::fs::metadata(place.path(FIRST)).unwrap().permissions().mode() & 0o777, 0o400);
    let (old, new) = (place.stored(FIRST), place.stored("l.jsonl"));
    let seal = &old[5];
    assert_eq!((&seal["event"], &seal["data"]["size"]), (&"segment.seal".into(), &5.into()));
    assert_eq!((&new[0]["event"], &new[0]["seq"], &new[0]["prev"]), (&"segment.open".into(), &6.into(), &seal["hash"]));
    assert_eq!(new[0]["data"]["sha256"], cp_ledger::format::Hash::of(&std::fs::read(place.path(FIRST)).unwrap()).hex());
    // Reading a ledger reads its segments.
    assert_eq!(place.lines(&["query", "l.jsonl"], "").len(), 9);
    let verified = place.lines(&["verify", "l.jsonl"], "");
    assert_eq!(verified.len(), 3);
    place.closing(&["rotate", "l.jsonl"], "", 0);
    assert!(place.path("l.00000000000000000006.jsonl").exists());
    place.lines(&["verify", "."], "");
    place.closing(&["append", "-f", FIRST, "m"], "", 6);
}

#[test]
fn missing_segments_are_faults_until_they_are_put_back() {
    const CLOSED: [&str; 3] = [FIRST, "l.00000000000000000005.jsonl", "l.00000000000000000010.jsonl"];
    let place = Ledgers::new();
    place.lines(&["keygen", "K"], "");
    place.lines(&["create", "--trust", "K.pub", "l.jsonl"], "");
    for _ in 0..3 {
        place.lines(&["append", "-f", "l.jsonl"], "one\ntwo\nthree\n");
        place.lines(&["rotate", "l.jsonl"], "");
    }
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    std::fs::create_dir(place.path("away")).unwrap();
    let move_all = |names: &[&str], from: &str, to: &str| {
        for name in names {
            std::fs::rename(place.path(&format!("{from}/{name}")), place.path(&format!("{to}/{name}"))).unwrap();
        }
    };
    for away in 0_usize..8 {
        let names: Vec<&str> = (0..3).filter(|at| away & (1 << at) != 0).map(|at| CLOSED[at]).collect();
        move_all(&names, ".", "away");
        let verified = place.run(&["verify", "--trust", "K.pub", "l.jsonl"]);
        if names.is_empty() {
            verified.code(0);
            continue;
        }
        let told = verified.code(1).stdout;
        // Of several that lie together the last is missed.
        let missed = (0..3).filter(|at| away & (1 << at) != 0 && away & (2 << at) == 0);
        for name in missed.map(|at| CLOSED[at]) {
            assert!(told.contains(&format!("{name} of ")) && told.contains("is missing"), "{away}: {told}");
            assert!(told.contains("put it back") && told.contains(r#""kind":"segment""#), "{away}: {told}");
        }
        for more in [&["prove", "1", "-f", "l.jsonl"][..], &["rotate", "l.jsonl"]] {
            let error = place.run(more).failed(1, "E_INTEGRITY");
            assert!(error["details"]["hint"].as_str().unwrap().contains("put it back"), "{away} {more:?}: {error}");
        }
        place.lines(&["append", "-f", "l.jsonl", "m"], "");
        move_all(&names, "away", ".");
    }
    place.run(&["verify", "--trust", "K.pub", "l.jsonl"]).success();
    assert_eq!(place.lines(&["prove", "1", "-f", "l.jsonl"], "").len(), 1);
}

#[test]
fn receipts_after_a_rotation_name_the_ledger() {
    let place = Ledgers::new();
    let origin = |line: &serde_json::Value| line["data"]["origin"].clone();
    let first = origin(&place.closing(&["append", "-f", "l.jsonl", "m"], "", 0));
    assert!(first.is_string());
    for _ in 0..2 {
        place.lines(&["rotate", "l.jsonl"], "");
        assert_eq!(place.stored("l.jsonl")[0]["data"]["origin"], first);
        assert_eq!(origin(&place.closing(&["append", "-f", "l.jsonl", "m"], "", 0)), first);
    }
}

#[test]
fn a_crash_after_any_step_is_completed_by_the_next_writer() {
    // The states that a crash leaves: sealed; sealed with a new file beside it; with the segment's name too.
    for step in 0..3 {
        let place = Ledgers::with(5);
        place.lines(&["rotate", "l.jsonl"], "");
        let (segment, ledger) = (place.path(FIRST), place.path("l.jsonl"));
        std::fs::set_permissions(&segment, PermissionsExt::from_mode(0o600)).unwrap();
        let next = place.path("l.jsonl.next");
        if step > 0 {
            std::fs::rename(&ledger, &next).unwrap();
        }
        if step == 1 {
            // Torn, even.
            std::fs::write(&next, "{\"seq\"").unwrap();
        }
        if step == 2 {
            std::fs::hard_link(&segment, &ledger).unwrap();
        } else {
            std::fs::rename(&segment, &ledger).unwrap();
        }
        assert_eq!(place.closing(&["append", "-f", "l.jsonl", "m"], "", 0)["data"]["seq"], 7, "step {step}");
        assert!(!next.exists());
        assert_eq!(place.stored(FIRST).len(), 6);
        place.lines(&["verify", "--complete", "l.jsonl"], "");
    }
}

#[test]
fn writers_go_on_while_it_is_rotated() {
    let place = Ledgers::with(2);
    let start = |n: usize| {
        let arguments: &[&str] = match n % 5 {
            0 => &["rotate", "l.jsonl"],
            _ => &["append", "-f", "l.jsonl", "--sync", "none", "m"],
        };
        place.subject().args(arguments).start()
    };
    let children: Vec<_> = (0..40).map(start).collect();
    for child in children {
        child.finish().success();
    }
    place.lines(&["verify", "--complete", "l.jsonl"], "");
    let entries = place.lines(&["query", "l.jsonl", "--event", "log"], "");
    assert_eq!(entries.last().unwrap()["data"]["count"], 32);
}

#[test]
fn entries_from_outside_that_look_like_the_ledgers_own_are_only_entries() {
    let place = Ledgers::new();
    place.forged();
    place.ledger("l.jsonl", 3);
    for (event, data) in [
        ("segment.seal", r#"{"size":2}"#),
        ("ledger.rollback", r#"{"signed":99,"lines":4,"checkpoint":"x"}"#),
        ("ledger.rollback", "{}"),
    ] {
        place.lines(&["append", "-f", "l.jsonl", "--event", event, "--data", data], "");
        place.lines(&["append", "-f", "l.jsonl", "m"], "");
    }
    assert_eq!(place.stored("l.jsonl").len(), 9);
    assert!(!place.path(FIRST).exists());
    // One that fits its place is a seal.
    place.lines(&["append", "-f", "l.jsonl", "--event", "segment.seal", "--data", r#"{"size":9}"#], "");
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    let events: Vec<_> = place.stored("l.jsonl").into_iter().map(|line| line["event"].clone()).collect();
    assert_eq!(events, ["segment.open", "log"]);
    place.lines(&["verify", "--complete", "l.jsonl"], "");
}

/// What belongs to a ledger lies beside its file, whichever name each program is given.
#[test]
fn a_link_is_another_name_of_the_ledger() {
    for is_there in [true, false] {
        let place = Ledgers::new();
        std::fs::create_dir(place.path("real")).unwrap();
        std::os::unix::fs::symlink("real/l.jsonl", place.path("link.jsonl")).unwrap();
        if is_there {
            place.ledger("real/l.jsonl", 2);
        }
        place.lines(&["append", "-f", "link.jsonl", "x"], "");
        place.lines(&["append", "-f", "link.jsonl"], &"v".repeat(2_000_000));
        place.sign("link.jsonl");
        place.lines(&["rotate", "link.jsonl"], "");
        place.lines(&["append", "-f", "link.jsonl", "y"], "");
        place.lines(&["checkpoint", "-f", "link.jsonl", "--sign-with", "K"], "");
        place.lines(&["bundle", "link.jsonl", "-o", "b"], "");
        let read = |name: &str| place.lines(&["query", "--event", "log", "--format", "raw", name], "");
        let entries = read("real/l.jsonl");
        assert_eq!(entries.len(), 3, "the control");
        let blob = entries[1]["message"]["blob"].as_str().unwrap();
        for name in ["link.jsonl", "real/l.jsonl", "b"] {
            place.lines(&["verify", "--trust", "K.pub", name], "");
            assert_eq!(read(name), entries, "{name}");
        }
        for words in [&["blob", blob][..], &["query"], &["tip"], &["prove", "1"]] {
            let of = |name| place.lines(&[words, &["--ledger", name]].concat(), "");
            assert_eq!(of("link.jsonl").len(), of("real/l.jsonl").len(), "{words:?}");
        }
        assert!(place.path("link.jsonl").is_symlink());
        let beside = std::fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(beside.filter(|name| name.to_string_lossy().starts_with("link.")).count(), 1);
    }
}
