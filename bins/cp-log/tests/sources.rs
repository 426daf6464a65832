//! What `query`, `stats`, `follow` and `verify` read beside files of ledgers: standard input and pipes.

use serde_json::{Value, json};

use crate::ledgers::Ledgers;

/// The entries that a query prints.
fn entries(place: &Ledgers, arguments: &[&str], input: &str) -> Vec<Value> {
    let mut lines = place.lines(&[&["query"], arguments].concat(), input);
    let closing = lines.pop().unwrap();
    assert_eq!(closing["data"]["count"], lines.len());
    lines.into_iter().map(|mut line| line["data"].take()).collect()
}

#[test]
fn standard_input_is_read_if_named() {
    let place = Ledgers::with(4);
    let ledger = String::from_utf8(place.work.bytes("l.jsonl")).unwrap();
    let found = entries(&place, &["-", "--event", "tick"], &ledger);
    assert_eq!((found.len(), &found[0]["ledger"], &found[0]["seq"]), (3, &json!("-"), &json!(1)));
    place.closing(&["query", "-", "--reverse"], &ledger, 2);
    assert_eq!(place.closing(&["stats", "-"], &ledger, 0)["data"]["entries"], 4);
    let verified = place.closing(&["verify", "-"], &ledger, 0)["data"].take();
    assert_eq!(
        (&verified["intact"], &verified["lines"], &verified["bytes"]),
        (&json!(true), &json!(4), &json!(ledger.len()))
    );
    let changed = ledger.replace("line 2", "line 9");
    assert_eq!(place.closing(&["verify", "-"], &changed, 1)["error"]["details"]["kind"], "hash");
    let mut child = place.subject().args(["query", "-"]).start();
    child.write(ledger.split_inclusive('\n').next().unwrap());
    assert_eq!(child.record()["data"]["event"], "ledger.open", "before the input ends");
    child.finish().success();
    place.closing(&["follow", "-"], &ledger, 2);
    place.closing(&["query", "-", "-"], &ledger, 2);
}

#[test]
fn waiting_standard_input_is_a_usage_error() {
    let place = Ledgers::with(2);
    for verb in ["query", "stats", "verify", "follow"] {
        let script = format!("cp-log {verb} < l.jsonl");
        let refused = place.sh(&script).code(2).closing();
        assert_eq!(refused["error"]["code"], "E_USAGE", "{verb}");
        assert!(refused["error"]["details"]["hint"].as_str().unwrap().contains("add -"), "{verb}");
    }
    place.sh("cp-log query l.jsonl < l.jsonl; cp-log query < /dev/null").success();
    // A program before the pipe need not have been quicker.
    let changed = place.work.read("l.jsonl").replace("line 1", "line 9");
    place.work.write("changed.jsonl", changed);
    let mut child = place.subject().args(["verify"]).start();
    child.write(place.work.bytes("changed.jsonl"));
    assert_eq!(child.wait().code(2).error()["code"], "E_USAGE");
    assert_eq!(place.sh("cat changed.jsonl | cp-log verify").code(2).error()["code"], "E_USAGE");
    assert_eq!(place.sh("cat changed.jsonl | cp-log verify -").code(1).error()["code"], "E_INTEGRITY");
}

#[test]
fn proof_of_nothing_fails() {
    let place = Ledgers::new();
    place.sh("mkdir empty").success();
    for script in ["verify empty", "verify", "audit empty", "audit", "--home gone verify"] {
        assert_eq!(place.sh(&format!("cp-log {script} </dev/null")).code(3).error()["code"], "E_NOT_FOUND", "{script}");
    }
    place.sh("cp-log append -f empty/l.jsonl m").success();
    for script in ["verify empty", "audit empty"] {
        place.sh(&format!("cp-log {script}")).success();
    }
}

#[test]
fn standard_input_without_data_is_ignored() {
    let place = Ledgers::new();
    place.sh("cp-log append m").success();
    for script in ["cp-log verify < /dev/null", "cp-log verify <&-", "true | cp-log verify", "cp-log stats <&-"] {
        place.sh(script).success();
    }
    // A pipe that a script inherits and nobody writes to.
    place.subject().args(["verify"]).start().wait().success();
}

#[test]
fn named_pipes_are_read_like_standard_input() {
    let place = Ledgers::with(5000);
    place.sh("gzip -k l.jsonl; mkfifo named.jsonl").success();
    let file = place.closing(&["verify", "l.jsonl"], "", 0)["data"].take();
    let same = |verified: &Value| {
        for member in ["intact", "lines", "bytes", "first_seq", "last_seq", "hash", "tail", "faults"] {
            assert_eq!(verified[member], file[member], "{member}: {verified}");
        }
        for what in ["lines", "json"] {
            assert_eq!(verified["proved"][what], file["proved"][what]);
        }
    };
    for script in [
        "zcat l.jsonl.gz | cp-log verify -",
        "cat l.jsonl | cp-log verify /dev/stdin",
        "cp-log verify /dev/stdin < l.jsonl",
        "cp-log verify <(zcat l.jsonl.gz)",
        "cat l.jsonl > named.jsonl & cp-log verify named.jsonl",
    ] {
        same(&place.shell("bash", script).run().success().data());
    }
    let cut = "zcat l.jsonl.gz | sed 's/line 4321/line 1234/' |";
    for operand in ["-", "/dev/stdin", "<(cat)"] {
        let told = place.shell("bash", &format!("{cut} cp-log verify {operand}")).run().code(1).error();
        assert_eq!((&told["details"]["kind"], &told["details"]["seq"]), (&json!("hash"), &json!(4321)), "{operand}");
    }
    for operand in ["-", "/dev/stdin", "<(cat)"] {
        let run = |verb: &str| {
            let script = format!("zcat l.jsonl.gz | cp-log {verb} {operand}");
            place.shell("bash", &script).run().success()
        };
        assert_eq!(run("stats").data()["entries"], 5000);
        assert_eq!(run("query --event tick").closing()["data"]["count"], 4999);
    }
    place.sh("cat l.jsonl | cp-log query - /dev/stdin").failed(2, "E_USAGE");
}

#[test]
fn a_file_without_hashes_is_refused() {
    let place = Ledgers::new();
    let text = "{\"event\":\"start\"}\n{\"event\":\"end\"}\n";
    place.work.write("f.jsonl", text);
    for words in [
        &["query", "f.jsonl"][..],
        &["query", "--reverse", "f.jsonl"],
        &["stats", "f.jsonl"],
        &["follow", "f.jsonl"],
        &["audit", "f.jsonl"],
        &["bundle", "f.jsonl"],
        &["repair", "f.jsonl"],
        &["append", "-f", "f.jsonl", "m"],
        &["append", "-f", "f.jsonl"],
        &["tee", "f.jsonl"],
    ] {
        assert_eq!(place.closing(words, "a line\n", 2)["error"]["code"], "E_VALIDATION", "{words:?}");
        assert_eq!(place.work.read("f.jsonl"), text, "{words:?}");
    }
    let error = place.closing(&["verify", "f.jsonl"], "", 2)["error"].take();
    assert_eq!((&error["code"], &error["details"]["lines"]), (&json!("E_VALIDATION"), &json!(2)));
    // Positive control: a ledger whose lines are all damaged is damaged, and not somebody else's.
    place.ledger("l.jsonl", 2);
    let text = String::from_utf8(place.work.bytes("l.jsonl")).unwrap();
    place.work.write("l.jsonl", text.replace("\"prev\":\"sha256:", "\"prev\":\"sha256:x"));
    assert_eq!(place.closing(&["verify", "l.jsonl"], "", 1)["error"]["code"], "E_INTEGRITY");
}
