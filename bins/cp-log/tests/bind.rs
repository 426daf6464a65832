//! `cp-log bind`, and `prove`, `check-proof` and `verify` by way of a bound.

use crate::ledgers::Ledgers;
use serde_json::{Value, json};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Five ledgers, a key, and the bound of the five.
fn bound() -> Ledgers {
    let place = Ledgers::new();
    std::fs::create_dir_all(place.path("shards/deep")).unwrap();
    for (at, name) in NAMES.iter().enumerate() {
        place.ledger(&file(name), 3 + at);
    }
    place.lines(&["keygen", "K"], "");
    let answer = bind(&place, 0);
    assert_eq!((&answer["data"]["ledgers"], &answer["data"]["lines"]), (&json!(5), &json!(25)));
    place
}

fn file(name: &str) -> String {
    format!("shards/{}{name}.jsonl", if name == "e" { "deep/" } else { "" })
}

#[track_caller]
fn bind(place: &Ledgers, exit: i32) -> Value {
    place.closing(&["bind", "shards", "--key", "K", "-o", "b.note"], "", exit)
}

/// The status that `verify --bound` reports for each ledger, by file name, and the error's code.
fn statuses(place: &Ledgers) -> (Vec<(String, String)>, Value) {
    let ran = place.run(&["verify", "--bound", "b.note", "--trust", "K.pub", "shards"]);
    let mut told = Vec::new();
    let records = ran.records();
    for record in &records {
        let of = if record["error"].is_object() { &record["error"]["details"] } else { &record["data"] };
        if let (Some(file), Some(bound)) = (of["file"].as_str(), of["bound"].as_str()) {
            told.push((file.rsplit('/').next().unwrap().to_owned(), bound.to_owned()));
        }
    }
    told.sort();
    assert_eq!(ran.status == 0, ran.closing()["error"].is_null(), "{ran:?}");
    (told, ran.closing()["error"]["code"].clone())
}

fn told(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, status)| (format!("{name}.jsonl"), (*status).to_owned())).collect()
}

#[test]
fn a_line_of_any_ledger_is_proved_with_the_public_key_alone() {
    let place = bound();
    for (at, name) in NAMES.iter().enumerate() {
        for seq in [0, at + 2] {
            let seq_text = seq.to_string();
            let proof = ["prove", &seq_text, "-f", &file(name), "--bound", "b.note", "--format", "raw"];
            let proof = place.run(&proof).success().stdout;
            place.work.write("p", &proof);
            let line = place.work.read(file(name)).lines().nth(seq).unwrap().to_owned() + "\n";
            let origin = place.stored(&file(name))[0]["data"]["origin"].as_str().unwrap().to_owned();
            let check = ["check-proof", "--trust", "K.pub", "--ledger-name", &origin, "--strict-exit", "p"];
            let checked = place.lines(&check, &line);
            assert_eq!(checked[0]["data"]["proved"], true);
            assert!(checked[0]["data"]["bound"].as_str().unwrap().starts_with("cp-bound/"));
            place.closing(&check, &line.replace("tick", "tock").replace("open", "shut"), 1);
        }
    }
    let beyond = ["prove", "3", "-f", &file("a"), "--bound", "b.note"];
    assert_eq!(place.closing(&beyond, "", 3)["error"]["code"], "E_NOT_FOUND");
    place.ledger("other.jsonl", 3);
    let other = ["prove", "0", "-f", "other.jsonl", "--bound", "b.note"];
    assert_eq!(place.closing(&other, "", 3)["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn verify_bound_reports_intact_grown_and_added() {
    let place = bound();
    place.lines(&["append", "-f", &file("b"), "m"], "");
    place.ledger("shards/z.jsonl", 2);
    let (status, code) = statuses(&place);
    let grown = [("a", "intact"), ("b", "grown"), ("c", "intact"), ("d", "intact"), ("e", "intact"), ("z", "added")];
    assert_eq!((status, code), (told(&grown), Value::Null));
}

#[test]
fn verify_bound_fails_on_missing_changed_and_shorter_ledgers() {
    let place = bound();
    std::fs::remove_file(place.path(&file("a"))).unwrap();
    let text = place.work.read(file("b"));
    place.work.write(file("b"), text.split_inclusive('\n').take(2).collect::<String>());
    // As long as before, and whole, but other lines from the last on.
    let text = place.work.read(file("c"));
    place.work.write(file("c"), text.split_inclusive('\n').take(4).collect::<String>());
    place.lines(&["append", "-f", &file("c"), "--event", "other", "m"], "");
    place.work.write(file("d"), place.work.read(file("d")).replacen("line 2", "line 9", 1));
    let wrong = [("a", "missing"), ("b", "went_back"), ("c", "changed"), ("d", "damaged"), ("e", "intact")];
    assert_eq!(statuses(&place), (told(&wrong), json!("E_INTEGRITY")));
    // Text says the same, and a bound is never made of it.
    let text = place.run(&["verify", "--bound", "b.note", "--format", "text", "shards"]).code(1);
    assert!(text.stdout.contains("deep/e.jsonl: 7 lines"), "{text:?}");
    assert!(text.stderr.contains("a.jsonl: missing: the bound has cp-ledger/"), "{text:?}");
    assert_eq!(bind(&place, 1)["error"]["code"], "E_INTEGRITY");
}

#[test]
fn file_with_the_name_of_a_bound_ledger_does_not_replace_it() {
    let place = bound();
    for text in ["", "{\"a\":1}\n"] {
        place.work.write(file("a"), text);
        let (status, code) = statuses(&place);
        assert_eq!((&status[0], code), (&told(&[("a", "missing")])[0], json!("E_INTEGRITY")));
    }
    // Nothing of it is intact, and it has the name.
    let text = place.work.read(file("b"));
    place
        .work
        .write(file("b"), text.replace("hash\":\"sha256:0", "hash\":\"sha256:1").replace("\"ts\":\"2", "\"ts\":\"3"));
    assert_eq!(statuses(&place).0[1], told(&[("b", "damaged")])[0]);
    let piped = place.closing(&["verify", "--bound", "b.note", "-"], &text, 2);
    assert_eq!(piped["error"]["code"], "E_USAGE");
}

#[test]
fn a_bound_never_goes_back() {
    let place = bound();
    let first = place.work.read("b.note");
    let short = place.work.bytes(file("b"));
    place.lines(&["append", "-f", &file("b"), "m"], "");
    bind(&place, 0);
    let second = place.work.read("b.note");
    assert_ne!(first, second);
    // Shorter than bound, though no checkpoint of its own says so.
    place.work.write(file("b"), short);
    assert_eq!(bind(&place, 1)["error"]["code"], "E_INTEGRITY");
    std::fs::remove_file(place.path(&file("b"))).unwrap();
    let missing = bind(&place, 6);
    assert_eq!(missing["error"]["details"]["file"], "b.jsonl");
    place.lines(&["keygen", "other"], "");
    place.closing(&["bind", "shards", "--key", "other", "-o", "b.note"], "", 1);
    place.lines(&["append", "-f", "one.jsonl", "m"], "");
    place.lines(&["checkpoint", "-f", "one.jsonl", "--sign-with", "K"], "");
    place.closing(&["bind", "one.jsonl", "--key", "K", "-o", "one.checkpoint"], "", 1);
    assert_eq!(place.work.read("b.note"), second);
    // The remaining ledgers can be bound in a file of their own.
    place.closing(&["bind", "shards", "--key", "K", "-o", "left.note"], "", 0);
}

#[test]
fn a_copy_of_a_ledger_is_named_with_the_ledger() {
    let place = bound();
    std::fs::copy(place.path(&file("a")), place.path("shards/copy.jsonl")).unwrap();
    let refused = bind(&place, 6);
    assert_eq!(refused["error"]["details"]["files"], json!(["a.jsonl", "copy.jsonl"]));
    let verified = place.closing(&["verify", "--bound", "b.note", "shards"], "", 0);
    let notice = &verified["meta"]["notices"][0];
    assert_eq!(notice["type"], "origin_twice");
    for name in ["shards/a.jsonl", "shards/copy.jsonl"] {
        assert!(notice["message"].as_str().unwrap().contains(name), "{notice}");
    }
}

#[test]
fn a_forged_bound_is_refused_before_any_ledger_is_judged() {
    let place = bound();
    let text = place.work.read("b.note");
    for forged in [text.replacen("\n3\n", "\n2\n", 1), text.replacen("a.jsonl", "x.jsonl", 1), "nothing".to_owned()] {
        assert_ne!(forged, text);
        place.work.write("forged", forged);
        let closing = place.closing(&["verify", "--bound", "forged", "shards"], "", 1);
        assert_eq!(closing["error"]["details"]["file"], "forged");
    }
    place.lines(&["keygen", "other"], "");
    place.closing(&["verify", "--bound", "b.note", "--trust", "other.pub", "shards"], "", 1);
    assert_eq!(place.closing(&["verify", "--bound", "none", "shards"], "", 3)["error"]["code"], "E_NOT_FOUND");
    let open = place.lines(&["verify", "--bound", "b.note", "shards"], "");
    assert_eq!(open[0]["data"]["not_proved"][0]["what"], "signature");
}

#[test]
fn bind_counts_segments_once_and_skips_other_files() {
    let place = bound();
    place.lines(&["rotate", &file("c")], "");
    place.ledger("big.jsonl", 2);
    std::fs::create_dir_all(place.path("shards/x.jsonl.blobs")).unwrap();
    std::fs::copy(place.path("big.jsonl"), place.path("shards/x.jsonl.blobs/x.jsonl")).unwrap();
    place.work.write("shards/rows.jsonl", "{\"a\":1}\n");
    let (status, code) = statuses(&place);
    assert!(status.contains(&("c.jsonl".into(), "grown".into())), "{status:?}");
    assert_eq!((status.len(), code), (5, Value::Null));
    let answer = bind(&place, 0);
    assert_eq!(answer["data"]["ledgers"], 5);
    assert_eq!(answer["meta"]["notices"][0]["type"], "not_a_ledger");
    // The segments alone are not the ledger.
    std::fs::remove_file(place.path(&file("c"))).unwrap();
    assert_eq!(bind(&place, 1)["error"]["code"], "E_INTEGRITY");
    assert_eq!(statuses(&place).1, "E_INTEGRITY");
}

#[test]
fn nothing_to_bind_is_an_error_and_a_dry_run_signs_nothing() {
    let place = Ledgers::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    place.lines(&["keygen", "K"], "");
    assert_eq!(place.closing(&["bind", "empty", "--key", "K"], "", 3)["error"]["code"], "E_NOT_FOUND");
    place.closing(&["bind", "--key", "K"], "", 2);
    place.work.write("rows.jsonl", "{\"a\":1}\n");
    place.closing(&["bind", "rows.jsonl", "--key", "K"], "", 2);
    place.ledger("l.jsonl", 3);
    let tried = place.closing(&["bind", "l.jsonl", "--key", "K", "-o", "b.note", "--dry-run"], "", 0);
    assert!(!place.path("b.note").exists());
    let printed = place.closing(&["bind", "l.jsonl", "--key", "K"], "", 0);
    assert_eq!(printed["data"]["root"], tried["data"]["root"]);
    assert!(printed["data"]["bound"].as_str().unwrap().starts_with("cp-ledger/bound@v1\ncp-ledger/"));
    let once = ["bind", "l.jsonl", "--key", "K", "--request-id", "r"];
    let first = place.closing(&once, "", 0)["data"].clone();
    std::fs::rename(place.path("l.jsonl"), place.path("gone")).unwrap();
    assert_eq!(place.closing(&once, "", 0)["data"], first);
    // What was signed is on the home's own ledger.
    let entries = place.lines(&["query", "--event", "ledger.bind"], "");
    let bound: Vec<_> = entries.iter().filter_map(|entry| entry["data"]["data"]["bound"].as_str()).collect();
    assert_eq!(bound, [&printed, &json!({"data": first})].map(|answer| answer["data"]["origin"].as_str().unwrap()));
}

#[test]
fn each_shard_that_is_dropped_swapped_doubled_or_cut_is_found() {
    let place = Ledgers::new();
    std::fs::create_dir(place.path("shards")).unwrap();
    place.lines(&["keygen", "K"], "");
    for n in 0..9 {
        place.ledger(&format!("shards/{n}.jsonl"), 3 + n);
    }
    place.lines(&["bind", "shards", "--key", "K", "-o", "b.note"], "");
    let verify = |exit: i32| place.feed(&["verify", "--bound", "b.note", "--trust", "K.pub", "shards"], "").code(exit);
    assert_eq!(verify(0).closing()["meta"]["notices"], Value::Null);
    let good: Vec<Vec<u8>> = (0..9).map(|n| place.work.bytes(format!("shards/{n}.jsonl"))).collect();
    for n in 0..9 {
        let (name, other) = (format!("shards/{n}.jsonl"), (n + 1) % 9);
        let notices = |exit: i32| verify(exit).closing()["meta"]["notices"].clone();
        std::fs::remove_file(place.path(&name)).unwrap();
        assert!(verify(1).stdout.contains(&format!("{n}.jsonl: missing: the bound has cp-ledger/")), "drop {n}");
        // In the place of another one, and both with each other.
        place.work.write(&name, &good[other]);
        assert!(verify(1).stdout.contains(&format!("{n}.jsonl: missing")), "copied over {n}");
        place.work.write(format!("shards/{other}.jsonl"), &good[n]);
        let told = notices(0).to_string();
        assert!(told.contains(&format!("{name} was bound as {other}.jsonl")), "{told}");
        assert!(told.contains(&format!("shards/{other}.jsonl was bound as {n}.jsonl")), "{told}");
        place.work.write(format!("shards/{other}.jsonl"), &good[other]);
        place.work.write(&name, &good[n]);
        place.work.write("shards/x.jsonl", &good[n]);
        let told = notices(0).to_string();
        assert!(told.contains("origin_twice") && told.contains(&name) && told.contains("shards/x.jsonl"), "{told}");
        std::fs::remove_file(place.path("shards/x.jsonl")).unwrap();
        // At a line, and within one.
        let lines: Vec<&[u8]> = good[n].split_inclusive(|byte| *byte == b'\n').collect();
        for cut in [lines[..lines.len() - 1].concat(), good[n][..good[n].len() - 5].to_vec()] {
            place.work.write(&name, cut);
            assert!(verify(1).stdout.contains("\"bound\":\"went_back\""), "cut {n}");
        }
        place.work.write(&name, &good[n]);
    }
    assert_eq!(verify(0).closing()["meta"]["notices"], Value::Null);
}

#[test]
fn two_thousand_ledgers_need_few_open_files() {
    let place = Ledgers::new();
    place.lines(&["keygen", "K"], "");
    place.many(2000);
    let limited = |words: &str| {
        let done = place.sh(&format!("ulimit -n 64; exec cp-log {words}"));
        (done.status, done.stdout)
    };
    let (status, said) = limited("bind shards --key K -o b.note");
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("\"ledgers\":2000"), "{said}");
    std::fs::remove_file(place.path("shards/1234.jsonl")).unwrap();
    let (status, said) = limited("verify --bound b.note --trust K.pub shards");
    assert_eq!(status, 1, "{said}");
    assert_eq!(said.matches("\"bound\":\"intact\"").count(), 1999);
    assert!(
        said.contains("1234.jsonl: missing: the bound has example.com/1234"),
        "{}",
        said.lines().last().unwrap_or_default()
    );
}
