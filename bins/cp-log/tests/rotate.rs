//! `cp-log rotate`: one chain over many files, whatever step a crash comes after.

use std::os::unix::fs::PermissionsExt;

use crate::ledgers::Ledgers;

const FIRST: &str = "l.00000000000000000000.jsonl";

#[test]
fn the_chain_goes_on_in_a_new_file() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 5);
    let rotated = place.closing(&["rotate", "l.jsonl"], "", 0);
    assert!(rotated["data"]["segment"].as_str().unwrap().ends_with(FIRST));
    place.lines(&["append", "-f", "l.jsonl", "--event", "after", "m"], "");
    assert_eq!(std::fs::metadata(place.path(FIRST)).unwrap().permissions().mode() & 0o777, 0o400);
    let (old, new) = (place.stored(FIRST), place.stored("l.jsonl"));
    let seal = &old[5];
    assert_eq!(
        (&seal["event"], &seal["data"]["count"], &seal["data"]["last"]),
        (&"segment.seal".into(), &5.into(), &4.into())
    );
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
fn a_missing_segment_is_named() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 5);
    place.lines(&["rotate", "l.jsonl"], "");
    place.lines(&["rotate", "l.jsonl"], "");
    std::fs::remove_file(place.path("l.00000000000000000006.jsonl")).unwrap();
    let second = &place.lines(&["verify", "l.jsonl"], "")[1]["data"]["absent"][0];
    assert_eq!((&second["file"], &second["first"]), (&"l.00000000000000000006.jsonl".into(), &6.into()));
    // Without segments, the first line of the remaining file names the file before it.
    std::fs::remove_file(place.path(FIRST)).unwrap();
    let closing = place.closing(&["verify", "l.jsonl"], "", 0);
    assert_eq!(closing["data"]["absent"], serde_json::json!([{"file": second["file"], "first": 0, "last": 7}]));
}

#[test]
fn a_crash_after_any_step_is_completed_by_the_next_writer() {
    // The states that a crash leaves: sealed; sealed with a new file beside it; with the segment's name too.
    for step in 0..3 {
        let place = Ledgers::new();
        place.ledger("l.jsonl", 5);
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
    let place = Ledgers::new();
    place.ledger("l.jsonl", 2);
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
    place.ledger("l.jsonl", 3);
    for (event, data) in [
        ("segment.seal", r#"{"count":2,"first":0,"last":1,"size":2,"then":{"seq":1,"event":"x"}}"#),
        ("ledger.rollback", r#"{"signed":99,"lines":4,"checkpoint":"x"}"#),
        ("ledger.rollback", "{}"),
    ] {
        place.lines(&["append", "-f", "l.jsonl", "--event", event, "--data", data], "");
        place.lines(&["append", "-f", "l.jsonl", "m"], "");
    }
    assert_eq!(place.stored("l.jsonl").len(), 9);
    assert!(!place.path(FIRST).exists());
    // One that fits its place is a seal; what it holds for the new file becomes a line in normal form.
    let data = r#"{"size":9,"then":{"seq":1,"hash":"x","event":"e","data":{"a":1}}}"#;
    place.lines(&["append", "-f", "l.jsonl", "--event", "segment.seal", "--data", data], "");
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    let events: Vec<_> = place.stored("l.jsonl").into_iter().map(|line| line["event"].clone()).collect();
    assert_eq!(events, ["segment.open", "e", "log"]);
    place.lines(&["verify", "--complete", "l.jsonl"], "");
}
