//! `cp-log verify` beyond the lines: segments, seals, checkpoints, recoveries, blobs, and properties that are not
//! proved.

use std::path::Path;

use crate::ledgers::Ledgers;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// A ledger of three segments with two blobs in each, signed.
fn ledger() -> Ledgers {
    let place = Ledgers::new();
    place.lines(&["keygen", "K"], "");
    place.lines(&["create", "--trust", "K.pub", "d/l.jsonl"], "");
    for part in 0..3 {
        // Bytes that are not a text go to a blob, however few they are.
        for n in 0..2 {
            place.feed(&["append", "-f", "d/l.jsonl"], [b'0' + part, b'a' + n, 0xff, b'\n']).success();
        }
        place.lines(&["append", "-f", "d/l.jsonl", "--sync", "none"], "one\ntwo\nthree\n");
        place.lines(&["checkpoint", "-f", "d/l.jsonl", "--sign-with", "K"], "");
        if part < 2 {
            place.lines(&["rotate", "d/l.jsonl"], "");
        }
    }
    place.lines(&["checkpoint", "-f", "d/l.jsonl", "--sign-with", "K"], "");
    place
}

/// The files below the ledger's directory that make it up.
fn files(place: &Ledgers) -> Vec<String> {
    let mut found = Vec::new();
    for directory in ["d", "d/l.jsonl.blobs"] {
        for entry in std::fs::read_dir(place.path(directory)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_file() && !name.ends_with(".checkpoint") {
                found.push(format!("{directory}/{name}"));
            }
        }
    }
    found.sort();
    found
}

fn write(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    if path.exists() {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    std::fs::write(path, bytes).unwrap();
}

/// What the last file of the ledger says.
fn last(place: &Ledgers, operand: &str) -> Value {
    let lines = place.lines(&["verify", operand], "");
    lines.into_iter().rev().find(|line| line["type"] == "item").unwrap()["data"].take()
}

#[test]
fn everything_is_proved_and_counted() {
    let place = ledger();
    for operand in ["d", "d/l.jsonl"] {
        let data = last(&place, operand);
        assert_eq!(data["not_proved"], json!([]), "{operand}");
        let proved = &data["proved"];
        for what in ["checkpoint", "signature", "segments", "blobs", "checkpoint_entries", "lines", "json"] {
            assert!(proved[what].as_u64().is_some_and(|count| count > 0), "{what}: {proved}");
        }
    }
    let first = &place.lines(&["verify", "d"], "")[0]["data"]["proved"];
    assert_eq!((&first["beginning"], &first["seals"], &first["blobs"]), (&json!(1), &json!(1), &json!(2)));
}

#[test]
fn verify_lists_what_is_not_proved() {
    let place = Ledgers::with(3);
    let open = |answer: &Value| -> Vec<String> {
        let open = answer["data"]["not_proved"].as_array().unwrap();
        open.iter().map(|open| open["what"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(open(&place.closing(&["verify", "l.jsonl"], "", 0)), ["checkpoint"]);
    assert_eq!(open(&place.closing(&["verify", "--no-json", "l.jsonl"], "", 0)), ["checkpoint", "json"]);
    assert_eq!(open(&place.closing(&["verify", "-"], &place.work.read("l.jsonl"), 0)), ["beside"]);
    place.sign("l.jsonl");
    assert_eq!(open(&place.closing(&["verify", "l.jsonl"], "", 0)), ["signature"]);
    assert!(open(&place.closing(&["verify", "--trust", "K.pub", "l.jsonl"], "", 0)).is_empty());
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    let data = place.closing(&["verify", "--trust", "K.pub", "l.jsonl"], "", 0)["data"].take();
    assert_eq!((&data["proved"]["checkpoint"], &data["not_proved"][0]["what"]), (&json!(3), &json!("checkpoint")));
    place.lines(&["rotate", "l.jsonl"], "");
    place.lines(&["rotate", "l.jsonl"], "");
    // A segment alone is refused with the name of its ledger.
    place.closing(&["verify", "l.00000000000000000006.jsonl"], "", 2);
}

#[test]
fn a_recovery_is_explained_by_the_bytes_that_were_moved_aside() {
    let place = Ledgers::with(3);
    place.add("l.jsonl", b"{\"seq\":3,\"ts\"");
    place.lines(&["append", "-f", "l.jsonl", "m"], "");
    assert_eq!(place.closing(&["verify", "l.jsonl"], "", 0)["data"]["proved"]["recoveries"], 1);
    let name = place.stored("l.jsonl")[3]["data"]["file"].as_str().unwrap().to_owned();
    place.work.write(&name, "{\"seq\":3,\"tx\"");
    assert_eq!(place.closing(&["verify", "l.jsonl"], "", 1)["error"]["details"]["kind"], "recovered");
    std::fs::remove_file(place.path(&name)).unwrap();
    let open = place.closing(&["verify", "l.jsonl"], "", 0)["data"]["not_proved"].clone();
    assert!(open.as_array().unwrap().iter().any(|open| open["what"] == "recoveries"), "{open}");
}

#[test]
fn verify_detects_wrong_seals_and_checkpoint_entries() {
    let place = Ledgers::with(3);
    let root = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let kind = |row: Value| {
        let text = place.work.read("l.jsonl");
        place.lines(&["append", "-f", "l.jsonl", "--rows"], &row.to_string());
        let kind = place.closing(&["verify", "l.jsonl"], "", 1)["error"]["details"]["kind"].clone();
        place.work.write("l.jsonl", text);
        kind
    };
    assert_eq!(kind(json!({"event": "ledger.checkpoint", "data": {"size": 3, "root": root, "verifier": "K"}})), "seal");
    assert_eq!(kind(json!({"event": "ledger.checkpoint", "data": {"size": 9, "root": root, "verifier": "K"}})), "seal");
    let seal = json!({"root": root, "size": 3});
    assert_eq!(kind(json!({"event": "segment.seal", "data": seal})), "seal");
    // One that is not about all lines before it is no seal, but an entry that has its name.
    let other = json!({"root": root, "size": 2});
    place.lines(&["append", "-f", "l.jsonl", "--rows"], &json!({"event": "segment.seal", "data": other}).to_string());
    place.lines(&["verify", "l.jsonl"], "");
}

/// What is done to a ledger.
#[derive(Clone, Copy, Debug)]
enum Change {
    Flip(usize, u8),
    RemoveLine(usize),
    SwapLines(usize),
    DoubleLine(usize),
    RemoveFile,
    SwapFiles(usize),
    DoubleFile(usize),
    CutFile(usize),
}

fn change() -> impl Strategy<Value = (usize, Change)> {
    let place = || any::<usize>();
    let change = prop_oneof![
        (place(), 1_u8..).prop_map(|(at, mask)| Change::Flip(at, mask)),
        place().prop_map(Change::RemoveLine),
        place().prop_map(Change::SwapLines),
        place().prop_map(Change::DoubleLine),
        Just(Change::RemoveFile),
        place().prop_map(Change::SwapFiles),
        place().prop_map(Change::DoubleFile),
        place().prop_map(Change::CutFile),
    ];
    (place(), change)
}

#[test]
fn verify_detects_every_change_of_files() {
    let place = ledger();
    place.lines(&["verify", "--complete", "d"], "");
    let files = files(&place);
    let good: Vec<Vec<u8>> = files.iter().map(|file| place.work.bytes(file)).collect();
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(120) });
    let outcome = runner.run(&change(), |(file, change)| {
        let file = file % files.len();
        let mut changed = vec![file];
        let path = place.path(&files[file]);
        let mut lines: Vec<&[u8]> = good[file].split_inclusive(|byte| *byte == b'\n').collect();
        let number = |at: usize| at % lines.len();
        match change {
            Change::Flip(at, mask) => {
                let mut bytes = good[file].clone();
                let at = at % bytes.len();
                bytes[at] ^= mask;
                write(&path, &bytes);
            }
            // The entry of the newest checkpoint: no signature covers it yet.
            Change::RemoveLine(at) if files[file] == "d/l.jsonl" && number(at) + 1 == lines.len() => return Ok(()),
            Change::RemoveLine(at) => {
                lines.remove(number(at));
                write(&path, &lines.concat());
            }
            Change::SwapLines(at) => {
                let at = number(at);
                let other = (at + 1) % lines.len();
                if at == other {
                    return Ok(());
                }
                lines.swap(at, other);
                write(&path, &lines.concat());
            }
            Change::DoubleLine(at) => {
                let at = number(at);
                lines.insert(at, lines[at]);
                write(&path, &lines.concat());
            }
            Change::RemoveFile => std::fs::remove_file(&path).unwrap(),
            Change::SwapFiles(other) => {
                let other = other % files.len();
                if other == file {
                    return Ok(());
                }
                write(&path, &good[other]);
                write(&place.path(&files[other]), &good[file]);
                changed.push(other);
            }
            Change::DoubleFile(number) => {
                // A blob that nothing refers to says nothing.
                if files[file].contains("blobs") {
                    return Ok(());
                }
                let copy = format!("d/l.{:020}.jsonl", number % 60);
                if files.contains(&copy) {
                    return Ok(());
                }
                write(&place.path(&copy), &good[file]);
                let closing = place.feed(&["verify", "--complete", "d"], "").code(1);
                std::fs::remove_file(place.path(&copy)).unwrap();
                prop_assert!(closing.stdout.contains("E_INTEGRITY"));
                return Ok(());
            }
            Change::CutFile(at) => write(&path, &good[file][..at % good[file].len()]),
        }
        let done = place.feed(&["verify", "--complete", "d"], "");
        let said = done.stdout.clone();
        for file in &changed {
            write(&place.path(&files[*file]), &good[*file]);
        }
        prop_assert!(said.contains("E_INTEGRITY"), "{change:?} of {}: {said}", files[file]);
        // A changed blob is named by its hash, a changed file by its name, or by the one that misses it. Where lines
        // are gone that referred to a blob, nothing can miss it.
        let is_named = |file: &usize| said.contains(files[*file].rsplit('/').next().unwrap());
        prop_assert!(changed.iter().any(is_named), "{change:?} of {}: {said}", files[file]);
        Ok(())
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
    place.lines(&["verify", "--complete", "d"], "");
}

/// Nothing asks for a second look at such a ledger but the blob itself.
#[test]
fn verify_checks_blobs_of_unsigned_ledger() {
    let place = Ledgers::new();
    place.feed(&["append", "-f", "l.jsonl"], b"a\xffb\n").success();
    assert_eq!(place.closing(&["verify", "l.jsonl"], "", 0)["data"]["proved"]["blobs"], json!(1));
    std::fs::remove_dir_all(place.path("l.jsonl.blobs")).unwrap();
    let failed = place.closing(&["verify", "l.jsonl"], "", 1);
    assert_eq!(failed["error"]["details"]["faults"][0]["kind"], json!("blob"), "{failed}");
}
