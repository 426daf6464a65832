//! `cp-log tip`, as a shell user meets it.

use crate::ledgers::Ledgers;

#[test]
fn the_tip_is_the_last_line() {
    let place = Ledgers::with(5);
    let data = place.closing(&["tip", "l.jsonl"], "", 0)["data"].take();
    let last = place.stored("l.jsonl").remove(4);
    assert_eq!((&data["seq"], &data["hash"], &data["ts"]), (&last["seq"], &last["hash"], &last["ts"]));
    assert_eq!(data["size"], std::fs::metadata(place.path("l.jsonl")).unwrap().len());
    let text = place.run(&["tip", "l.jsonl", "--format", "text"]).success();
    assert!(text.stdout.starts_with("4 sha256:"));
}

#[test]
fn tip_skips_torn_line_and_reports_damaged_line() {
    let place = Ledgers::with(3);
    let mut bytes = place.work.bytes("l.jsonl");
    bytes.extend_from_slice(b"{\"seq\"");
    place.work.write("l.jsonl", &bytes);
    let data = place.closing(&["tip", "l.jsonl"], "", 0)["data"].take();
    assert_eq!((data["seq"].as_u64(), data["tail"].as_str()), (Some(2), Some("in_flight")));
    let in_the_last_line = bytes.len() - 150;
    bytes[in_the_last_line] ^= 1;
    place.work.write("l.jsonl", &bytes);
    assert_eq!(place.closing(&["tip", "l.jsonl"], "", 1)["error"]["code"], "E_INTEGRITY");
    assert_eq!(place.closing(&["tip", "none"], "", 3)["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn run_names_the_ledger_of_verbs_that_take_one_and_is_not_begun() {
    let place = Ledgers::new();
    let file = place.home.join("planes/ho1/runs/RUN-a.jsonl");
    place.lines(&["append", "-f", file.to_str().unwrap(), "--run", "RUN-a"], &"x".repeat(2 << 20));
    place.lines(&["append", "of no run"], "");
    place.lines(&["keygen", "K"], "");
    let blob = std::fs::read_dir(file.with_extension("jsonl.blobs")).unwrap().last().unwrap().unwrap();
    let blob = format!("sha256:{}", blob.file_name().to_str().unwrap());
    let untouched = place.lines(&["tip"], "")[0]["data"].take();
    assert_eq!(place.lines(&["tip", "--run", "RUN-a"], "")[0]["data"]["ledger"], file.to_str().unwrap());
    let verbs: [&[&str]; 14] = [
        &["checkpoint", "--sign-with", "K"],
        &["prove", "1"],
        &["blob", &blob],
        &["tip"],
        &["verify"],
        &["audit"],
        &["query"],
        &["query", "--reverse"],
        &["stats"],
        &["follow", "--last", "9", "--limit", "1"],
        &["bundle"],
        &["repair"],
        &["repair", "--accept-shorter"],
        &["rotate"],
    ];
    for verb in verbs {
        let done = place.run(&[verb, &["--run", "RUN-a"]].concat()).success();
        assert!(done.stdout.contains("RUN-a") || done.stdout.contains("\"ok\":true"), "{verb:?}: {done:?}");
    }
    assert_eq!(place.lines(&["tip"], "")[0]["data"], untouched);
    for verb in verbs {
        let refused = place.run(&[verb, &["--run", "RUN-typo"]].concat()).code(3).closing();
        assert_eq!(refused["error"]["code"], "E_NOT_FOUND", "{verb:?}");
    }
    // A file that is named comes first.
    place.run(&["tip", "--run", "RUN-none", file.to_str().unwrap()]).success();
    assert_eq!(place.run(&["create", "--run", "RUN-typo"]).code(3).closing()["error"]["code"], "E_NOT_FOUND");
    // What is asked of one run is answered about that run alone.
    assert_eq!(place.lines(&["verify", "--run", "RUN-a"], "")[0]["type"], "item");
    let runs = std::fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(runs.into_iter().all(|name| name.to_str().unwrap().starts_with("RUN-a")));
}

#[test]
fn the_name_of_a_run_is_the_ledger_of_its_newest_run_for_every_verb_that_reads() {
    let place = Ledgers::new();
    place.forged();
    // The newest is not the last of the ids.
    for id in ["RUN-b", "RUN-c", "RUN-a"] {
        let file = place.home.join(format!("planes/ho1/runs/{id}.jsonl"));
        let start = ["--event", "run_start", "--data", r#"{"name":"nightly"}"#, "--run", id];
        place.lines(&[&["append", "-f", file.to_str().unwrap()], &start[..]].concat(), "");
    }
    for run in ["nightly", "RUN-a"] {
        for verb in [&["tip"][..], &["query"], &["audit"], &["follow", "--last", "9", "--limit", "1"]] {
            for named in [&[run][..], &["--run", run]] {
                let ran = place.run(&[verb, named].concat()).success();
                assert!(ran.stdout.contains("RUN-a") && !ran.stdout.contains("RUN-b"), "{verb:?} {named:?}: {ran:?}");
            }
        }
    }
    let tip = |file| place.closing(&["tip", file], "", 3)["error"]["details"]["hint"].to_string();
    assert!(tip("RUN-d").contains("cp-toolloop runs"), "{}", tip("RUN-d"));
}
