//! The order and the pages of `cp-log query` over many ledgers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use cp_testkit::Place;
use serde_json::{Value, json};

use crate::ledgers::Ledgers;

/// Appends an entry at a given time.
fn at(place: &Place, file: &str, time: &str, message: &str) {
    let arguments = ["append", "-f", file, "--event", "e", "--", message];
    place.subject().args(arguments).now(&format!("2026-11-21T{time}Z")).run().success();
}

/// Three ledgers, one of them with a segment, whose entries alternate; the clock of `b` goes backward once.
fn filled() -> Ledgers {
    let place = Ledgers::new();
    for (file, time, message) in [
        ("b.jsonl", "01:00:00", "1"),
        ("a.jsonl", "02:00:00", "2"),
        ("a.jsonl", "03:00:00", "3"),
        ("c.jsonl", "03:00:00", "3c"),
        ("b.jsonl", "06:00:00", "6"),
        ("b.jsonl", "04:00:00", "4 after 6"),
        ("b.jsonl", "07:00:00", "7"),
    ] {
        at(&place, file, time, message);
    }
    place.lines(&["rotate", "a.jsonl"], "");
    at(&place, "a.jsonl", "05:00:00", "5");
    at(&place, "a.jsonl", "08:00:00", "8");
    place
}

const FILES: [&str; 3] = ["a.jsonl", "b.jsonl", "c.jsonl"];

/// One page: its messages and the cursor of the next.
fn page(place: &Ledgers, options: &[&str], cursor: Option<&str>) -> (Vec<String>, Option<String>) {
    let mut arguments = [&["query", "--event", "e"], options, &FILES].concat();
    arguments.extend(cursor.into_iter().flat_map(|cursor| ["--cursor", cursor]));
    let mut lines = place.lines(&arguments, "");
    let closing = lines.pop().unwrap();
    assert_eq!(closing["data"]["has_more"], closing["data"]["next_cursor"].is_string());
    let messages = lines.iter().map(|line| line["data"]["message"].as_str().unwrap().to_owned()).collect();
    (messages, closing["data"]["next_cursor"].as_str().map(str::to_owned))
}

fn all_pages(place: &Ledgers, options: &[&str]) -> Vec<String> {
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let (page, next) = page(place, options, cursor.as_deref());
        seen.extend(page);
        match next {
            Some(next) => cursor = Some(next),
            None => return seen,
        }
    }
}

#[test]
fn newest_first_is_over_all_ledgers_and_their_segments() {
    let place = filled();
    let (newest, _) = page(&place, &["--reverse"], None);
    assert_eq!(newest, ["8", "7", "5", "4 after 6", "6", "3c", "3", "2", "1"]);
    let (oldest, _) = page(&place, &[], None);
    assert_eq!(oldest, ["1", "2", "3", "3c", "5", "6", "4 after 6", "7", "8"]);
}

#[test]
fn pages_of_every_size_and_order_are_the_whole() {
    let place = filled();
    for order in [&[][..], &["--reverse"]] {
        let (whole, _) = page(&place, order, None);
        for limit in ["1", "2", "3", "4", "8"] {
            assert_eq!(all_pages(&place, &[order, &["--limit", limit]].concat()), whole, "{order:?} {limit}");
        }
    }
}

#[test]
fn pages_stay_exact_while_lines_are_appended_and_rotated() {
    let place = filled();
    let (first, cursor) = page(&place, &["--reverse", "--limit", "3"], None);
    assert_eq!(first, ["8", "7", "5"]);
    at(&place, "a.jsonl", "09:00:00", "9");
    at(&place, "c.jsonl", "09:30:00", "9c");
    place.lines(&["rotate", "a.jsonl"], "");
    assert_eq!(page(&place, &["--reverse", "--limit", "3"], cursor.as_deref()).0, ["4 after 6", "6", "3c"]);
    let (first, cursor) = page(&place, &["--limit", "3"], None);
    assert_eq!(first, ["1", "2", "3"]);
    // The entry that the page ended with is now in a segment.
    place.lines(&["rotate", "a.jsonl"], "");
    at(&place, "a.jsonl", "10:00:00", "10");
    assert_eq!(page(&place, &["--limit", "3"], cursor.as_deref()).0, ["3c", "5", "6"]);
}

#[test]
fn cursor_of_another_query_is_refused() {
    let place = filled();
    let (_, cursor) = page(&place, &["--limit", "1"], None);
    let cursor = cursor.unwrap();
    let tried = |arguments: &[&str]| place.closing(&[&["query", "--limit", "1"], arguments].concat(), "", 2);
    for arguments in [
        &["--event", "other", "a.jsonl", "b.jsonl", "c.jsonl", "--cursor", &cursor][..],
        &["--event", "e", "a.jsonl", "b.jsonl", "--cursor", &cursor],
        &["--event", "e", "a.jsonl", "b.jsonl", "c.jsonl", "--reverse", "--cursor", &cursor],
        &["--event", "e", "a.jsonl", "b.jsonl", "c.jsonl", "--cursor", "garbage"],
        &["--event", "e", "a.jsonl", "b.jsonl", "c.jsonl", "--cursor", "a.jsonl:3"],
    ] {
        assert_eq!(tried(arguments)["error"]["code"], "E_VALIDATION", "{arguments:?}");
    }
    let other = Ledgers::new();
    let runs = other.sh(&format!("cp-toolloop runs --cursor {cursor}; cp-session list --cursor {cursor}"));
    let codes: Vec<Value> =
        runs.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["error"]["code"].take()).collect();
    assert_eq!(codes, ["E_VALIDATION", "E_VALIDATION"]);
}

#[test]
fn every_hit_says_its_ledger_and_its_place() {
    let place = filled();
    let found = place.lines(&["query", "--event", "e", ".", "--fields", "ledger,seq"], "");
    let has = |ledger: &str| found.iter().any(|hit| hit["data"] == json!({"ledger": ledger, "seq": 1}));
    assert!(has("./a.jsonl") && has("./c.jsonl"), "a segment belongs to its ledger: {found:?}");
    let name = OsStr::from_bytes(b"n\xff.jsonl");
    std::fs::copy(place.path("c.jsonl"), place.path("d.jsonl")).unwrap();
    std::fs::rename(place.path("d.jsonl"), place.work.join(name)).unwrap();
    let done = place.subject().arg("query").arg(name).run().success().records();
    assert_eq!(done[0]["data"]["ledger"], "n\u{fffd}.jsonl");
    assert_eq!(done[0]["data"]["ledger_bytes"], "bv8uanNvbmw=");
    // The mark is no part of what was written.
    let prelude =
        "cp-log keygen K && cp-log checkpoint -f a.jsonl --sign-with K && cp-log prove 1 -f a.jsonl --format raw >p";
    place.sh(&format!("{{ {prelude}; }} >/dev/null")).success();
    let proved = place.sh("cp-log query a.jsonl --limit 2 | cp-log check-proof --trust K.pub p --input records");
    let proved = proved.records();
    assert!(proved.iter().any(|line| line["data"]["proved"] == true), "{proved:?}");
}
