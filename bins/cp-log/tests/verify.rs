//! `cp-log verify`: what is damaged is found, at its line, and nothing else is.

use std::path::Path;

use crate::ledgers::Ledgers;
use cp_ledger::proof::verifier::{self, Options, Report, State};
use proptest::prelude::*;
use serde_json::{Value, json};

fn faults(place: &Ledgers, name: &str) -> Vec<(u64, String)> {
    let closing = place.closing(&["verify", "--complete", name], "", 1);
    assert_eq!(closing["error"]["code"], "E_INTEGRITY");
    let faults = closing["error"]["details"]["faults"].as_array().unwrap();
    faults.iter().map(|fault| (fault["line"].as_u64().unwrap(), fault["kind"].as_str().unwrap().to_owned())).collect()
}

fn lines_of(place: &Ledgers, name: &str) -> Vec<Vec<u8>> {
    place.work.bytes(name).split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// The report of the library about a file.
fn report(path: &Path, before: Option<State>, closed: bool) -> Report {
    verifier::verify(path, before, &Options { json: true, closed }, &mut |_, _| {}).unwrap()
}

/// A line with this body, rightly hashed.
fn composed(seq: u64, body: &str, prev: &str) -> Vec<u8> {
    let head = format!("{{\"seq\":{seq},\"ts\":\"2026-11-21T03:00:00.000000Z\"{body},\"prev\":\"{prev}\"");
    let hash = cp_ledger::format::Hash::of(head.as_bytes());
    format!("{head},\"hash\":\"{hash}\"}}\n").into_bytes()
}

fn hash_of(line: &[u8]) -> String {
    serde_json::from_slice::<Value>(line).unwrap()["hash"].as_str().unwrap().to_owned()
}

#[test]
fn lines_that_were_removed_doubled_swapped_or_made_up_are_found() {
    let place = Ledgers::with(10);
    let good = lines_of(&place, "l.jsonl");
    let check = |change: &dyn Fn(&mut Vec<Vec<u8>>), line: u64, kind: &str| {
        let mut lines = good.clone();
        change(&mut lines);
        place.work.write("x.jsonl", lines.concat());
        assert_eq!(faults(&place, "x.jsonl")[0], (line, kind.to_owned()));
    };
    check(&|lines| drop(lines.remove(4)), 5, "chain");
    check(&|lines| drop(lines.remove(0)), 1, "chain");
    check(&|lines| lines.insert(4, lines[4].clone()), 6, "chain");
    check(&|lines| lines.swap(4, 5), 5, "chain");
    check(&|lines| lines[4] = b"\n".to_vec(), 5, "shape");
    check(&|lines| lines[4] = composed(4, ",\"event\":\"forged\"", &hash_of(&lines[3])), 6, "chain");
    check(&|lines| lines[9] = composed(10, ",\"event\":\"e\"", &hash_of(&lines[8])), 10, "seq");
    check(&|lines| lines[9] = composed(9, ",\"event\":", &hash_of(&lines[8])), 10, "json");
    check(&|lines| lines[9] = composed(9, ",\"event\": \"e\"", &hash_of(&lines[8])), 10, "normal_form");
    check(&|lines| lines[9] = composed(9, ",\"event\":\"\\u0041\"", &hash_of(&lines[8])), 10, "normal_form");
    check(&|lines| lines[9] = composed(9, ",\"data\":{\"a\":1,\"a\":1}", &hash_of(&lines[8])), 10, "json");
    check(&|lines| lines[9].truncate(20), 10, "torn");
    // It is named by the number that it claims, too.
    let last = good[4].len() - 10;
    check(&|lines| lines[4][last] = b'x', 5, "shape");
    assert_eq!(place.closing(&["verify", "x.jsonl"], "", 1)["error"]["details"]["seq"], 4);
    check(&|lines| lines.push(composed(10, ",\"event\":", &hash_of(&lines[9]))), 11, "json");
    place.closing(&["verify", "--no-json", "x.jsonl"], "", 0);
    let data = place.closing(&["verify", "l.jsonl"], "", 0)["data"].take();
    assert_eq!((&data["intact"], &data["lines"], &data["last_seq"]), (&json!(true), &json!(10), &json!(9)));
    assert_eq!((&data["hash"], &data["tail"]), (&place.stored("l.jsonl")[9]["hash"], &json!("complete")));
}

#[test]
fn nested_hashes_do_not_mislead() {
    let place = Ledgers::new();
    let inner = r#"{"prev":"sha256:0000000000000000000000000000000000000000000000000000000000000000","hash":"sha256:0000000000000000000000000000000000000000000000000000000000000000"}"#;
    place.lines(&["append", "-f", "l.jsonl", "--rows"], &format!("{{\"event\":\"e\",\"data\":{inner}}}\n{inner}\n"));
    place.closing(&["verify", "l.jsonl"], "", 0);
    assert_eq!(place.stored("l.jsonl")[2]["data"]["hash"], serde_json::from_str::<Value>(inner).unwrap()["hash"]);
}

#[test]
fn verify_finds_each_fault_of_a_file_of_many_chunks() {
    let place = Ledgers::new();
    let input = (0..60_000).map(|n| format!("{n} {}", "x".repeat(n % 300))).collect::<Vec<_>>().join("\n");
    place.lines(&["append", "-f", "l.jsonl", "--sync", "none"], &input);
    let mut lines = lines_of(&place, "l.jsonl");
    for line in [1, 17_000, 17_001, 30_000, 59_999] {
        lines[line][60] ^= 1;
    }
    lines.remove(45_000);
    place.work.write("l.jsonl", lines.concat());
    let closing = place.closing(&["verify", "l.jsonl"], "", 1);
    let details = &closing["error"]["details"];
    assert_eq!((&details["fault_count"], &details["lines"]), (&6.into(), &60_000.into()));
}

#[test]
fn a_flip_of_any_byte_is_found_at_its_line() {
    let place = Ledgers::with(cp_testkit::times(12, 100));
    let lines = lines_of(&place, "l.jsonl");
    let path = place.path("x.jsonl");
    let verified = |bytes: &[u8], before| {
        std::fs::write(&path, bytes).unwrap();
        report(&path, before, true)
    };
    for (number, line) in lines.iter().enumerate() {
        // What is before was proved once; two lines after it show that the damage does not spread.
        let before = (number > 0).then(|| verified(&lines[..number].concat(), None).end);
        let rest = lines[number..lines.len().min(number + 3)].concat();
        for place in 0..line.len() {
            for mask in [0x01, 0xff] {
                let mut bad = rest.clone();
                bad[place] ^= mask;
                let faults = verified(&bad, before).faults;
                assert!(
                    !faults.is_empty() && faults.iter().all(|fault| fault.line == 1),
                    "line {number} byte {place}: {faults:?}"
                );
            }
        }
    }
}

#[test]
fn every_truncation_is_classified() {
    let place = Ledgers::with(4);
    let good = place.work.bytes("l.jsonl");
    let path = place.path("x.jsonl");
    for length in 0..good.len() {
        std::fs::write(&path, &good[..length]).unwrap();
        for closed in [false, true] {
            let report = report(&path, None, closed);
            let whole = length == 0 || good[length - 1] == b'\n';
            assert_eq!(report.in_flight, !whole);
            assert_eq!(report.fault_count, u64::from(closed && !whole), "{length}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn verify_judges_arbitrary_bytes(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n')], 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, &bytes).unwrap();
        prop_assert_eq!(report(&path, None, true).fault_count > 0, !bytes.is_empty());
        let before = std::fs::read(&path).unwrap();
        let appended = cp_ledger::Ledger::open(&path, cp_ledger::Sync::None).and_then(|mut l| l.append(cp_ledger::Entry::new("e")));
        if appended.is_ok() {
            prop_assert_eq!(report(&path, None, true).fault_count, 0);
        } else {
            prop_assert_eq!(std::fs::read(&path).unwrap(), before);
        }
    }
}

#[test]
fn ledger_that_was_removed_whole_is_missed_where_something_of_it_is_left() {
    for left in ["checkpoint", "blobs"] {
        let place = Ledgers::new();
        place.work.directory("d");
        place.run(&["keygen", "K"]).success();
        let long = "x".repeat(2 << 20);
        for (name, text) in [("a", long.as_str()), ("b", "short")] {
            place.feed(&["append", "-f", &format!("d/{name}.jsonl")], text).success();
        }
        if left == "checkpoint" {
            place.run(&["checkpoint", "-f", "d/a.jsonl", "--sign-with", "K"]).success();
            std::fs::remove_dir_all(place.path("d/a.jsonl.blobs")).unwrap();
        }
        let ledger = std::fs::read(place.path("d/a.jsonl")).unwrap();
        std::fs::remove_file(place.path("d/a.jsonl")).unwrap();
        for verb in ["verify", "audit"] {
            let error = place.run(&[verb, "d"]).failed(1, "E_INTEGRITY");
            assert!(error["message"].as_str().unwrap().contains("its ledger d/a.jsonl is not"), "{left}: {error}");
        }
        place.run(&["query", "d"]).success();
        if left == "blobs" {
            std::fs::write(place.path("d/a.jsonl"), ledger).unwrap();
            place.run(&["verify", "d"]).success();
            place.run(&["audit", "d"]).success();
        }
    }
}

#[test]
fn ledger_of_a_home_that_was_removed_is_missed_until_that_is_recorded() {
    let place = Ledgers::new();
    for name in ["planes/ho1/runs/a.jsonl", "planes/ho1/runs/b.jsonl", "ledger/c.jsonl"] {
        let path = place.home.join(name).display().to_string();
        place.lines(&["append", "-f", &path, "x"], "");
        // The control: each ledger is there, in a home that is copied too.
        place.lines(&["verify"], "");
    }
    let copy = place.path("copy");
    let copied = std::process::Command::new("cp").arg("-r").args([place.home.join("."), copy.clone()]).status();
    assert!(copied.unwrap().success());
    for (gone, home) in [("planes", place.home.join("")), ("ledger/c.jsonl", copy)] {
        let whole = home.join(gone);
        std::fs::remove_dir_all(&whole).or_else(|_| std::fs::remove_file(&whole)).unwrap();
        let root = home.display().to_string();
        for verb in [&["verify"][..], &["audit"], &["verify", &root]] {
            let error = place.run(&[&["--home", &root], verb].concat()).failed(1, "E_INTEGRITY");
            assert!(error["message"].as_str().unwrap().contains("was made in this home"), "{gone}: {error}");
            let line = format!("cp-log repair --accept-shorter {}", whole.display());
            assert!(error["details"]["hint"].as_str().unwrap().ends_with(&line), "{gone}: {error}");
        }
        let accept = |more: &[&str], exit| {
            let path = whole.display().to_string();
            place.closing(&[&["--home", &root, "repair", "--accept-shorter", &path], more].concat(), "", exit)
        };
        let token = accept(&["--dry-run"], 0)["data"]["confirm_token"].as_str().unwrap().to_owned();
        assert_eq!(accept(&["--confirm", &token], 0)["data"]["changed"], true);
        place.lines(&["--home", &root, "verify"], "");
        accept(&["--dry-run"], 3);
    }
}

#[test]
fn fault_decides_the_exit_status_wherever_its_ledger_is_named() {
    let place = Ledgers::with(4);
    place.work.write("bad.jsonl", place.work.read("l.jsonl").replace("line 2", "line X"));
    let names = ["l.jsonl", "nope.jsonl", "bad.jsonl"];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let order = order.map(|at| names[at]);
        let ran = place.run(&[&["verify"], &order[..]].concat()).code(1);
        assert_eq!(ran.error()["code"], "E_INTEGRITY", "{order:?}");
        assert_eq!(ran.error()["details"]["total"], 3, "{order:?}");
    }
    assert_eq!(place.run(&["verify", "l.jsonl", "nope.jsonl"]).code(3).error()["code"], "E_NOT_FOUND");
    // The selected members are bare objects, and nothing else.
    for (verb, member) in [("verify", "file"), ("audit", "ledger")] {
        for operands in [&["l.jsonl"][..], &["l.jsonl", "bad.jsonl"]] {
            let ran = place.run(&[&[verb, "--format", "text", "--fields", member], operands].concat());
            assert!(!ran.stdout.is_empty() && ran.stdout.lines().all(|line| line.starts_with('{')), "{ran:?}");
        }
    }
}

#[test]
fn for_a_person_what_is_well_is_one_line_and_each_fault_is_one() {
    let place = Ledgers::new();
    std::fs::create_dir(place.path("d")).unwrap();
    let text = |arguments: &[&str], exit| {
        let ran = place.run(&[&["verify", "--format", "text"], arguments].concat()).code(exit);
        ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    place.work.write("e/notes.jsonl", "{}\n");
    place.ledger("e/l.jsonl", 2);
    assert_eq!(place.closing(&["verify", "e"], "", 0)["data"]["skipped"], 1);
    place.closing(&["verify", "none.jsonl"], "", 3);
    let unsigned = "Not signed, so removed last lines would not be noticed: cp-log checkpoint.";
    for ledger in 0..16 {
        place.ledger(&format!("d/{ledger}.jsonl"), 3 + ledger);
    }
    assert_eq!(text(&["d"], 0), [format!("16 ledgers, 168 lines: intact. {unsigned}")]);
    assert_eq!(text(&["d/0.jsonl"], 0), [format!("1 ledger, 3 lines: intact. {unsigned}")]);
    // Two files of one ledger.
    place.lines(&["rotate", "d/0.jsonl"], "");
    assert_eq!(text(&["d/0.jsonl"], 0), [format!("1 ledger, 5 lines: intact. {unsigned}")]);
    place.sign("d/1.jsonl");
    let told = text(&["--trust", "K.pub", "d/1.jsonl"], 0);
    assert_eq!(told, ["1 ledger, 5 lines: intact."]);
    let told = text(&["d"], 0);
    assert!(told[0].ends_with("intact. 15 not signed, so removed last lines would not be noticed: cp-log checkpoint."));
    assert!(told.len() == 2 && told[1].contains("d/1.jsonl: not proved: signature: "), "{told:?}");
    let mut lines = lines_of(&place, "d/2.jsonl");
    lines[1][50] ^= 1;
    lines.remove(3);
    place.work.write("d/2.jsonl", lines.concat());
    for operand in ["d/2.jsonl", "d"] {
        let told = text(&[operand], 1);
        let faults: Vec<_> = told.iter().filter(|line| line.contains("d/2.jsonl:")).collect();
        assert!(faults.len() == 2 && faults[0].contains("d/2.jsonl:2: "), "{told:?}");
        assert_eq!(told.iter().any(|line| line.contains(": 2 faults.")), operand == "d", "{told:?}");
    }
}
