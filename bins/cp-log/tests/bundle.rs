//! `cp-log bundle`, and the verbs that take a bundle like the directory that it was made of.

use cp_testkit::{Outcome, Place};
use serde_json::{Value, json};

use crate::ledgers::Ledgers;
use crate::work::Work;

/// Verifies a bundle where there is nothing else.
fn check(bundle: &[u8], arguments: &[&str]) -> Outcome {
    let place = Place::of("cp-log");
    let ran = place.feed(&[&["verify", "-"], arguments].concat(), bundle);
    assert!(!place.home.exists(), "a check leaves nothing");
    ran
}

/// The bytes of a bundle.
fn bundled(place: &Place, words: &str) -> Vec<u8> {
    place.sh(&format!("rm -f b && cp-log bundle {words} -o b")).success();
    place.work.bytes("b")
}

/// The lines between the files of a bundle: where each begins, and what it says.
fn parts(bundle: &[u8]) -> Vec<(usize, Value)> {
    let (mut at, mut parts) = (0, Vec::new());
    while at < bundle.len() {
        let end = at + bundle[at..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let part: Value = serde_json::from_slice(&bundle[at..end]).unwrap();
        let length = part["bytes"].as_u64().unwrap_or(0);
        parts.push((at, part));
        at = end + usize::try_from(length).unwrap();
    }
    parts
}

fn paths(bundle: &[u8]) -> Vec<String> {
    parts(bundle)[1..].iter().map(|(_, part)| part["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn bundle_is_read_like_its_directory() {
    let work = Work::new();
    let home = work.0.home.display().to_string();
    let bundle = bundled(&work.0, &home);
    assert_eq!(bundled(&work.0, &home), bundle, "the same ledgers are the same bundle");
    assert_eq!(work.0.run(&["bundle", &home]).success().stdout.into_bytes(), bundle);
    // Besides the names of files, what times say.
    let same = |text: String| text.replace(&home, "HERE").replace("./b", "HERE").replace("b/", "HERE/");
    for words in ["verify", "stats", "query", "query --event exec.intent --reverse", "audit"] {
        let read = |from: &str| {
            let ran = work.0.sh(&format!("cp-log {words} {from}")).success();
            let lines = ran.stdout.lines().map(|line| same(line.split("\"meta\"").next().unwrap().to_owned()));
            let mut lines: Vec<String> = lines.collect();
            lines.sort();
            lines
        };
        let expected = read(&home);
        assert!(expected.len() > 1 || words == "stats", "{words}");
        assert_eq!(read("b"), expected, "{words}");
        if words != "audit" {
            assert_eq!(read("- <b").len(), expected.len(), "{words}");
        }
    }
    assert_eq!(work.0.sh("cp-log bundle b -o c && cmp b c").success().stdout.lines().count(), 1);
    work.0.sh("mkdir t && TMPDIR=$PWD/t cp-log verify b && rmdir t").success();
}

#[test]
fn a_changed_byte_and_a_cut_are_found_in_every_part_of_a_bundle() {
    let work = Work::new();
    let bundle = bundled(&work.0, "");
    let parts = parts(&bundle);
    assert!(parts.len() > 6 && check(&bundle, &[]).success().records().len() > 6);
    for (number, (start, part)) in parts.iter().enumerate() {
        let end = parts.get(number + 1).map_or(bundle.len(), |(next, _)| *next);
        let header = start + part.to_string().len() + 1;
        // Another place in each; a name says nothing that is proved.
        for at in [*start, header + number * 7919 % (end - header).max(1)] {
            let mut changed = bundle.clone();
            changed[at.min(bundle.len() - 1)] ^= 1;
            let found = check(&changed, &[]);
            assert!([1, 2].contains(&found.status), "byte {at} of {part}: {found:?}");
        }
        for cut in [*start, start + 5, header.min(end - 1), usize::midpoint(header, end)] {
            if cut > parts[1].0 {
                let found = check(&bundle[..cut], &[]).code(1).error();
                assert_eq!(found["code"], "E_INTEGRITY");
                assert!(found["details"]["offset"].as_u64().is_some_and(|at| at <= cut as u64), "{found}");
            }
        }
    }
}

#[test]
fn a_bundle_that_lies_about_its_files_is_refused() {
    let head = |count: usize| format!("{{\"format\":\"cp-bundle/1\",\"files\":{count}}}\n");
    let file = |path: &str, bytes: usize| format!("{}\n", json!({"path": path, "bytes": bytes}));
    let place = Ledgers::signed(12);
    let ledger = place.work.read("l.jsonl");
    let one = |path: &str| head(1) + &file(path, ledger.len()) + &ledger;
    check(one("l.jsonl").as_bytes(), &[]).success();
    check(one("deep/down/l.jsonl").as_bytes(), &[]).success();
    for (what, bundle) in [
        ("above", one("../l.jsonl")),
        ("inside and above", one("a/../../l.jsonl")),
        ("absolute", one("/tmp/l.jsonl")),
        ("no name", one("")),
        ("itself", one(".")),
        ("a NUL", one("l\0.jsonl")),
        ("too long a name", one(&format!("{}.jsonl", "x".repeat(300)))),
        ("doubled", head(2) + &(file("l.jsonl", ledger.len()) + &ledger).repeat(2)),
        ("a file as a directory", head(2) + &file("l.jsonl", ledger.len()) + &ledger + &file("l.jsonl/a", 0)),
        ("shorter than it says", head(1) + &file("l.jsonl", ledger.len() + 1) + &ledger),
        ("longer than it says", head(1) + &file("l.jsonl", ledger.len() - 1) + &ledger),
        ("too few files", head(2) + &file("l.jsonl", ledger.len()) + &ledger),
        ("too many files", one("l.jsonl") + &file("m.jsonl", 0)),
        ("a length that is none", one("l.jsonl").replacen("\"bytes\":", "\"bytes\":-", 1)),
        ("an unknown member", one("l.jsonl").replacen("{\"path\"", "{\"mode\":7,\"path\"", 1)),
        ("a long line", head(1) + &"x".repeat(1 << 20)),
    ] {
        let refused = check(bundle.as_bytes(), &[]).code(1).error();
        assert_eq!(refused["code"], "E_INTEGRITY", "{what}");
        assert!(refused["details"]["offset"].is_u64(), "{what}: {refused}");
        place.work.write("lies", &bundle);
        for verb in ["verify", "audit", "query", "stats", "page", "bundle"] {
            let ran = place.run(&[verb, "lies"]);
            assert!(ran.status != 0, "{verb}, {what}: {ran:?}");
        }
        assert!(!place.root.join("l.jsonl").exists() && !std::path::Path::new("/tmp/l.jsonl").exists());
    }
}

#[test]
fn signatures_of_a_bundle_are_those_of_its_ledgers() {
    let place = Ledgers::signed(12);
    let bundle = bundled(&place, "l.jsonl");
    place.lines(&["keygen", "other"], "");
    let (public, other) = (place.path("K.pub").display().to_string(), place.path("other.pub").display().to_string());
    let proved = check(&bundle, &["--trust", &public]).success();
    assert_eq!(proved.of("item")[0]["proved"]["checkpoint"], 12, "{proved:?}");
    assert_eq!(check(&bundle, &["--trust", &other]).code(1).error()["code"], "E_INTEGRITY");
    check(&bundle, &["--trust", &other, "--trust", &public]).success();
    place.ledger("unsigned.jsonl", 3);
    let bundle = bundled(&place, "unsigned.jsonl");
    check(&bundle, &[]).success();
    check(&bundle, &["--trust", &public]).code(1);
    // A ledger that was taken out, and one that is not the one that was signed.
    let text = place.work.read("l.jsonl");
    let shorter: String = text.split_inclusive('\n').take(5).collect();
    for lines in [shorter, text.replacen("line 3", "line 4", 1)] {
        place.work.write("l.jsonl", lines);
        assert_eq!(check(&bundled(&place, "l.jsonl"), &[]).code(1).error()["code"], "E_INTEGRITY");
    }
    // A signed ledger whose place something else has taken, in a directory and in a bundle.
    std::fs::create_dir(place.path("signed")).unwrap();
    std::fs::copy(place.path("l.checkpoint"), place.path("signed/l.checkpoint")).unwrap();
    place.work.write("signed/l.jsonl", "{\"a\":1}\n");
    let other = "{\"format\":\"cp-bundle/1\",\"files\":1}\n{\"path\":\"l.jsonl\",\"bytes\":8}\n{\"a\":1}\n";
    place.work.write("other", other);
    for verb in ["verify", "audit", "query", "stats"] {
        for from in ["signed", "other"] {
            assert!(place.run(&[verb, from]).status != 0, "{verb} {from}");
        }
    }
    place.sh("cp-log bundle - <l.jsonl").failed(2, "E_VALIDATION");
}

#[test]
fn bundle_has_segments_checkpoints_and_blobs_under_names_of_their_own() {
    let place = Ledgers::signed(12);
    place.lines(&["rotate", "l.jsonl"], "");
    place.lines(&["append", "-f", "l.jsonl"], &"x".repeat(5 << 20));
    std::fs::create_dir(place.path("d")).unwrap();
    for name in ["plain", "d/l.jsonl"] {
        place.lines(&["append", "-f", name, "text"], "");
    }
    let answer = place.run(&["bundle", "l.jsonl", "plain", "d", "-o", "b"]).success().data();
    assert_eq!((&answer["ledgers"], &answer["files"]), (&json!(3), &json!(6)), "{answer}");
    let bundle = place.work.bytes("b");
    let found = paths(&bundle);
    let expected = ["l.checkpoint", "l.00000000000000000000.jsonl", "l.jsonl", "plain.jsonl", "d/l.jsonl"];
    assert!(expected.iter().all(|name| found.iter().any(|path| path == name)), "{found:?}");
    assert!(found.iter().any(|path| path.starts_with("l.jsonl.blobs/")), "{found:?}");
    check(&bundle, &[]).success();
    assert_eq!(place.run(&["bundle", "l.jsonl", "-o", "b"]).code(6).error()["code"], "E_CONFLICT");
    std::fs::remove_dir_all(place.path("l.jsonl.blobs")).unwrap();
    let missing = check(&bundled(&place, "l.jsonl"), &[]).code(1).error();
    assert!(missing["message"].as_str().unwrap().contains("is missing"), "{missing}");
}

#[test]
fn bundle_of_a_run_or_a_session_has_its_ledgers_alone() {
    let work = Work::new();
    work.0.program("cp-toolloop").args(["--backend", "stub", "other"]).run().success();
    let [run, session] = work.names();
    for words in [run.clone(), format!("--run {run}")] {
        assert_eq!(paths(&bundled(&work.0, &words)), [format!("{run}.jsonl")], "{words}");
    }
    for words in [session.clone(), format!("--session {session}")] {
        let found = paths(&bundled(&work.0, &words));
        assert!(found.len() >= 2 && found.iter().any(|path| path.ends_with("exec.jsonl")), "{found:?}");
        assert!(found.iter().all(|path| !path.contains("RUN-")), "{found:?}");
    }
    let shared = work.0.home.join("ledger/cp-exec.jsonl").display().to_string();
    assert_eq!(paths(&bundled(&work.0, &format!("{run} {shared}"))).len(), 2);
    for words in ["none", "--run none", "--session none"] {
        work.0.sh(&format!("cp-log bundle {words}")).failed(3, "E_NOT_FOUND");
    }
}
