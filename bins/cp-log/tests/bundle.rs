//! `cp-log bundle` and `verify` of a bundle: a bundle of real work is proved with its file alone, and each changed byte is found where it is.

use cp_testkit::{Outcome, Place};
use serde_json::json;

use crate::ledgers::Ledgers;
use crate::work::Work;

/// Verifies a bundle where there is nothing else.
fn check(bundle: &[u8], arguments: &[&str]) -> Outcome {
    let place = Place::of("cp-log");
    let ran = place.feed(&[&["verify", "-"], arguments].concat(), bundle);
    assert!(!place.home.exists(), "a check leaves nothing");
    ran
}

fn signed() -> Ledgers {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 12);
    place.lines(&["keygen", "K", "--signer", "example.com/log"], "");
    place.lines(&["checkpoint", "-f", "l.jsonl", "--sign-with", "K"], "");
    place
}

#[test]
fn a_changed_byte_in_any_line_of_a_bundle_of_real_work_is_found_there() {
    let work = Work::new();
    let bundle = work.0.run(&["bundle"]).success().stdout.into_bytes();
    let proved = check(&bundle, &[]).success().data();
    assert_eq!((&proved["holds"], proved["ledgers"].as_array().unwrap().len() > 6), (&json!(true), true));
    let mut start = 0;
    let lines: Vec<&[u8]> = bundle.split_inclusive(|byte| *byte == b'\n').collect();
    for (number, line) in lines.iter().enumerate() {
        let mut changed = bundle.clone();
        // Another place in each, from the first byte to the last.
        changed[start + number * 7919 % line.len()] ^= 1;
        let found = check(&changed, &[]).code(1).error();
        assert_eq!(found["code"], "E_INTEGRITY");
        assert_eq!(found["details"]["line"], json!(number + 1), "{found}");
        start += line.len();
    }
    for cut in [lines.len() - 1, lines.len() / 2] {
        check(&lines[..cut].concat(), &[]).code(1);
    }
    let without: Vec<&[u8]> = lines.iter().enumerate().filter(|(at, _)| *at != 5).map(|(_, line)| *line).collect();
    check(&without.concat(), &[]).code(1);
    check(&[&bundle[..], b"{}\n"].concat(), &[]).code(1);
}

#[test]
fn bundle_check_reports_lines_after_the_signature() {
    let place = signed();
    let bundle = place.run(&["bundle", "l.jsonl"]).success().stdout;
    let public = place.path("K.pub");
    let proved = check(bundle.as_bytes(), &["--trust", public.to_str().unwrap()]).success().data();
    let ledger = &proved["ledgers"][0];
    assert_eq!((&ledger["signed_by"], &ledger["whole"]), (&json!(["example.com/log"]), &json!(true)));
    assert_eq!(
        (&ledger["signed_size"], &ledger["size"], &ledger["after_checkpoint"]),
        (&json!(12), &json!(13), &json!(1))
    );
    assert!(proved["not_proved"][0].as_str().unwrap().contains("after the checkpoint"), "{proved}");
    place.lines(&["keygen", "other"], "");
    let other = place.path("other.pub");
    let refused = check(bundle.as_bytes(), &["--trust", other.to_str().unwrap()]).code(1).error();
    assert!(refused["message"].as_str().unwrap().contains("none of the keys"), "{refused}");
    // Two keys: one of them is enough.
    check(bundle.as_bytes(), &["--trust", other.to_str().unwrap(), "--trust", public.to_str().unwrap()]).success();
    place.ledger("unsigned.jsonl", 3);
    let bundle = place.run(&["bundle", "unsigned.jsonl"]).success().stdout;
    assert!(bundle.contains(r#""status":"unsigned""#));
    check(bundle.as_bytes(), &[]).success();
    check(bundle.as_bytes(), &["--trust", public.to_str().unwrap()]).code(1);
}

#[test]
fn a_part_of_a_ledger_is_proved_line_by_line_and_shows_that_the_rest_is_there() {
    let place = signed();
    for run in ["a", "b", "a"] {
        place.lines(&["append", "-f", "l.jsonl", "--run", run, "text"], "");
    }
    let bundle = place.run(&["bundle", "--run", "a", "l.jsonl"]).success().stdout;
    let lines: Vec<&str> = bundle.lines().filter(|line| line.contains(r#""type":"bundle_line""#)).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains(r#""next":{"hash""#) && !lines[1].contains(r#""next""#));
    let public = place.path("K.pub");
    let proved = check(bundle.as_bytes(), &["--trust", public.to_str().unwrap()]).success().data();
    let ledger = &proved["ledgers"][0];
    assert_eq!((&ledger["lines"], &ledger["size"], &ledger["whole"]), (&json!(2), &json!(16), &json!(false)));
    let mut start = 0;
    for (number, line) in bundle.split_inclusive('\n').enumerate() {
        for at in (0..line.len()).step_by(97) {
            let mut changed = bundle.clone().into_bytes();
            changed[start + at] ^= 2;
            assert_eq!(check(&changed, &[]).code(1).error()["details"]["line"], json!(number + 1));
        }
        start += line.len();
    }
    assert_eq!(place.run(&["bundle", "--run", "none", "l.jsonl"]).code(3).closing()["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn bundle_has_segments_and_blobs() {
    let place = signed();
    place.lines(&["rotate", "l.jsonl"], "");
    let large = "x".repeat(5 << 20);
    place.lines(&["append", "-f", "l.jsonl"], &large);
    let answer = place.run(&["bundle", "l.jsonl", "-o", "b.jsonl"]).success().data();
    assert_eq!((&answer["ledgers"], &answer["blobs"]), (&json!(1), &json!(1)));
    assert_eq!(place.run(&["verify", "b.jsonl"]).success().data()["holds"], json!(true));
    let bundle = place.work.read("b.jsonl");
    assert_eq!(bundle.matches(r#""type":"bundle_blob""#).count(), 2, "a large value comes in parts");
    let proved = check(bundle.as_bytes(), &[]).success().data();
    assert_eq!((&proved["blobs"], &proved["ledgers"][0]["whole"]), (&json!(1), &json!(true)));
    let parts: Vec<&str> = bundle.split_inclusive('\n').filter(|line| !line.contains(r#""offset":4194304"#)).collect();
    check(parts.concat().as_bytes(), &[]).code(1);
    assert_eq!(place.run(&["bundle", "l.jsonl", "-o", "b.jsonl"]).code(6).error()["code"], "E_CONFLICT");
    std::fs::remove_dir_all(place.path("l.jsonl.blobs")).unwrap();
    let bundle = place.run(&["bundle", "l.jsonl"]).success().stdout;
    let proved = check(bundle.as_bytes(), &[]).success().data();
    assert!(proved["not_proved"].to_string().contains("not there any more"), "{proved}");
}

#[test]
fn bundle_refuses_damaged_and_rolled_back_ledgers() {
    let place = signed();
    let text = place.work.read("l.jsonl");
    place.work.write("l.jsonl", text.replacen("line 3", "line 4", 1));
    assert_eq!(place.run(&["bundle", "l.jsonl"]).code(1).closing()["error"]["code"], "E_INTEGRITY");
    assert_eq!(place.run(&["bundle", "l.jsonl", "-o", "b"]).code(1).error()["code"], "E_INTEGRITY");
    assert!(!place.path("b").exists(), "a bundle appears whole or not at all");
    let shorter: String = text.split_inclusive('\n').take(5).collect();
    place.work.write("l.jsonl", shorter);
    let refused = place.run(&["bundle", "l.jsonl"]).code(1).closing();
    assert!(refused["error"]["message"].as_str().unwrap().contains("not the one that was signed"), "{refused}");
    place.work.write("plain.jsonl", "{\"a\":1}\n");
    place.run(&["bundle", "plain.jsonl"]).code(2);
    place.run(&["audit", "plain.jsonl"]).code(2);
    let broken = place.run(&["bundle", "l.jsonl"]).stdout;
    check(broken.as_bytes(), &[]).code(1);
}

#[test]
fn the_bundle_of_a_run_has_what_shared_ledgers_have_of_it() {
    let place = Place::of("cp-log");
    place.policy("[exec]\nallowed_commands = [\"echo\"]\n");
    for run in ["RUN-a", "RUN-b"] {
        let file = place.home.join(format!("planes/ho1/runs/{run}.jsonl"));
        place.run(&["append", "-f", file.to_str().unwrap(), "--run", run, "begun"]).success();
    }
    let shared = place.home.join("ledger/cp-exec.jsonl").display().to_string();
    for run in ["RUN-a", "RUN-out"] {
        place.program("cp-exec").args(["--ledger", &shared, "--run", run, "--", "echo", "hi"]).run().success();
    }
    let bundle = place.run(&["bundle", "--run", "RUN-a"]).success();
    let ledgers = bundle.of("bundle_ledger");
    let found: Vec<_> = ledgers.iter().map(|ledger| (ledger["file"].as_str().unwrap(), &ledger["whole"])).collect();
    assert_eq!(found, [("RUN-a.jsonl", &json!(true)), ("cp-exec.jsonl", &json!(false))]);
    let lines = bundle.of("bundle_line");
    let of_shared = &lines[lines.len() - usize::try_from(ledgers[1]["lines"].as_u64().unwrap()).unwrap()..];
    assert!(of_shared.len() > 1 && of_shared.iter().all(|line| line["raw"].as_str().unwrap().contains("RUN-a")));
    assert_eq!(check(bundle.stdout.as_bytes(), &[]).success().data()["holds"], json!(true));
    let alone = place.run(&["bundle", "--run", "RUN-b"]).success();
    assert_eq!((alone.of("bundle_ledger").len(), &alone.closing()["data"]["skipped"]), (1, &json!(0)));
    place.run(&["bundle", "--run", "RUN-out"]).code(3);
}

#[test]
fn bundle_is_audited_queried_and_summed_like_its_ledgers() {
    let work = Work::new();
    let (ledger, _) = work.find("RUN-*.jsonl", "run_end");
    let run = ledger.file_stem().unwrap().to_str().unwrap();
    let bundle = work.0.run(&["bundle", "--run", run]).success().stdout;
    work.0.work.write("run.bundle", &bundle);
    std::fs::remove_dir_all(&work.0.home).unwrap();
    let (claims, closing) = work.audit(&["run.bundle"], 0);
    let held = |name: &str| claims.iter().filter(|claim| claim["claim"] == name && claim["holds"] == true).count();
    assert_eq!(held("chain"), 2, "the ledger and the bundle: {claims:?}");
    assert_eq!(closing["data"]["broken"], 0);
    assert!(held("receipt") > 0 && held("finished") > 0, "{claims:?}");
    let name = |claim: &serde_json::Value| claim["ledger"].as_str().unwrap().starts_with("run.bundle");
    assert!(claims.iter().all(name), "{claims:?}");
    let ends = work.0.run(&["query", "run.bundle", "--event", "run_end"]).success();
    assert_eq!(ends.closing()["data"]["count"], 1, "{ends:?}");
    let sums = work.0.run(&["stats", "run.bundle"]).success().data();
    assert_eq!(sums["entries"], json!(bundle.lines().filter(|line| line.contains("\"bundle_line\"")).count()));
    // A changed word, a removed line: the bundle itself does not hold.
    work.0.work.write("run.bundle", bundle.replacen("completed", "cancelled", 1));
    assert_eq!(work.audit(&["run.bundle"], 1).1["error"]["code"], "E_INTEGRITY");
    let end = bundle.lines().position(|line| line.contains("tool_result")).unwrap();
    let without: Vec<&str> = bundle.lines().enumerate().filter(|(at, _)| *at != end).map(|(_, line)| line).collect();
    work.0.work.write("run.bundle", without.join("\n") + "\n");
    work.audit(&["run.bundle"], 1);
}

#[test]
fn part_of_ledger_in_bundle_lists_its_gaps() {
    let place = Ledgers::new();
    place.ledger("l.jsonl", 9);
    let until = place.stored("l.jsonl")[5]["ts"].as_str().unwrap().to_owned();
    let bundle = place.run(&["bundle", "--since", &until, "l.jsonl"]).success().stdout;
    let checked = check(bundle.as_bytes(), &[]).success().data();
    let gaps = checked["ledgers"][0]["gaps"].as_array().unwrap();
    let missing: u64 = gaps.iter().map(|gap| gap[1].as_u64().unwrap() - gap[0].as_u64().unwrap() + 1).sum();
    assert_eq!(json!(9 - missing), checked["lines"], "{checked}");
    place.work.write("part.bundle", bundle);
    assert_eq!(place.run(&["audit", "part.bundle"]).success().closing()["data"]["broken"], 0);
}
