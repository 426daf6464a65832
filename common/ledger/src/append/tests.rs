//! Appending, as the programs use it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::blob;
use crate::format::line::Line;
use crate::read::lines;
use cp_common::json;

fn ledger() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/l.jsonl");
    (dir, path)
}

/// The events of a file, after proving every line of it.
fn proven(path: &Path) -> Vec<String> {
    let (mut events, mut reader) = (Vec::new(), lines(path).unwrap());
    let mut prev = None;
    while let Some(raw) = reader.next().unwrap() {
        let line = raw.stored().expect("a line of ours");
        assert!(line.is_intact() && json::is_normal(line.bytes()));
        assert_eq!(line.seq(), events.len() as u64);
        assert!(prev.is_none_or(|prev| prev == line.prev()));
        prev = Some(line.hash());
        events.push(
            line.member("event").map(|event| String::from_utf8_lossy(event).replace('"', "")).unwrap_or_default(),
        );
    }
    events
}

fn append(path: &Path, event: &str) -> Result<Receipt> {
    Ledger::open(path, Sync::None)?.append(Entry::new(event))
}

#[test]
fn a_new_ledger_opens_with_its_origin_and_chains_from_it() {
    let (_dir, path) = ledger();
    let receipt = append(&path, "a").unwrap();
    assert_eq!(receipt.seq, 1);
    assert_eq!(proven(&path), ["ledger.open", "a"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let first = Line::parse(text.lines().next().unwrap().as_bytes()).unwrap();
    let data: serde_json::Value = serde_json::from_slice(first.member("data").unwrap()).unwrap();
    assert_eq!(data["format"], FORMAT);
    assert_eq!(first.prev(), Hash::of_origin(data["origin"].as_str().unwrap()));
    let mode = std::fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn two_that_are_open_at_once_take_turns() {
    let (_dir, path) = ledger();
    let mut one = Ledger::open(&path, Sync::Line).unwrap();
    let mut two = Ledger::open(&path, Sync::Batch).unwrap();
    for turn in 1..=5 {
        assert_eq!(one.append(Entry::new("one")).unwrap().seq, 2 * turn - 1);
        assert_eq!(two.append(Entry::new("two")).unwrap().seq, 2 * turn);
    }
    let receipts = one.append_all(vec![Entry::new("x"), Entry::new("y")]).unwrap();
    assert_eq!((receipts[0].seq, receipts[1].seq), (11, 12));
    assert_eq!(proven(&path).len(), 13);
}

#[test]
fn all_or_nothing_when_one_of_many_is_wrong() {
    let (_dir, path) = ledger();
    let mut ledger = Ledger::open(&path, Sync::None).unwrap();
    assert!(ledger.append_all(vec![Entry::new("x"), Entry::new("y").data(&1)]).is_err());
    ledger.append(Entry::new("z")).unwrap();
    assert_eq!(proven(&path), ["ledger.open", "z"]);
}

#[test]
fn torn_bytes_are_moved_aside_and_recorded() {
    for torn in [&b"{\"seq\":2,\"ts\":\"20"[..], &[0; 5000], b"x"] {
        let (_dir, path) = ledger();
        append(&path, "a").unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(torn).unwrap();
        append(&path, "b").unwrap();
        assert_eq!(proven(&path), ["ledger.open", "a", "ledger.recovered", "b"]);
        let text = std::fs::read_to_string(&path).unwrap();
        let told = Line::parse(text.lines().nth(2).unwrap().as_bytes()).unwrap();
        let data: serde_json::Value = serde_json::from_slice(told.member("data").unwrap()).unwrap();
        assert_eq!(data["len"], torn.len());
        let kept = std::fs::read(path.with_file_name(data["file"].as_str().unwrap())).unwrap();
        assert_eq!(kept, torn);
    }
}

#[test]
fn every_truncation_can_be_appended_to() {
    let (_dir, path) = ledger();
    append(&path, "a").unwrap();
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        append(&path, "b").unwrap();
        assert_eq!(proven(&path).last().map(String::as_str), Some("b"), "{length}");
    }
}

#[test]
fn foreign_files_stay_as_they_are() {
    for foreign in ["{\"a\":1}\n", "hello", "\n", "{\"seq\":0,\"ts\":\"2026\"}\n", "{}"] {
        let (_dir, path) = ledger();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, foreign).unwrap();
        assert_eq!(append(&path, "a").unwrap_err().code(), Code::Validation, "{foreign}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(append(dir.path(), "a").is_err());
}

#[test]
fn a_damaged_last_line_stops_appending_and_a_damaged_middle_does_not() {
    let (_dir, path) = ledger();
    append(&path, "a").unwrap();
    append(&path, "b").unwrap();
    let good = std::fs::read(&path).unwrap();
    let last = memchr::memmem::rfind(&good, b"\"event\":\"b\"").unwrap();
    let mut bad = good.clone();
    bad[last + 9] = b'X';
    std::fs::write(&path, &bad).unwrap();
    assert_eq!(append(&path, "c").unwrap_err().code(), Code::Integrity);
    assert_eq!(std::fs::read(&path).unwrap(), bad);
    let mut bad = good.clone();
    bad[30] = b'X';
    std::fs::write(&path, &bad).unwrap();
    assert_eq!(append(&path, "c").unwrap().seq, 3);
}

#[test]
fn a_replaced_file_is_noticed_under_the_lock() {
    let (dir, path) = ledger();
    let mut ledger = Ledger::open(&path, Sync::None).unwrap();
    ledger.append(Entry::new("a")).unwrap();
    std::fs::rename(&path, dir.path().join("old")).unwrap();
    assert_eq!(ledger.append(Entry::new("b")).unwrap().seq, 1);
    assert_eq!(proven(&path), ["ledger.open", "b"]);
}

#[test]
fn secrets_and_bad_bytes_are_counted_and_large_values_moved() {
    let (_dir, path) = ledger();
    let mut ledger = Ledger::open(&path, Sync::None).unwrap();
    ledger.append(Entry::new("e").message("password=hunter22").with("redactions", &1)).unwrap();
    let mut bad = Entry::new("e");
    bad.set_message_bytes(b"a\xff");
    ledger.append(bad).unwrap();
    ledger.append(Entry::new("e").content(&"x".repeat(3 << 20))).unwrap();
    proven(&path);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().skip(1).map(|line| Line::parse(line.as_bytes()).unwrap()).collect();
    assert_eq!(lines[0].body(), br#","event":"e","message":"password=[REDACTED:assignment]","data":{"redactions":2}"#);
    let data: serde_json::Value = serde_json::from_slice(lines[1].member("data").unwrap()).unwrap();
    assert_eq!(data["replaced"], 1);
    let hash = Hash::parse(data["original"]["blob"].as_str().unwrap()).unwrap();
    assert_eq!(blob::load(&path, &hash).unwrap(), b"a\xff");
    let content = blob::resolve(&path, lines[2].member("content").unwrap()).unwrap().unwrap();
    assert_eq!(content.len(), (3 << 20) + 2);
}
