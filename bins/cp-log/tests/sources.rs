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
fn file_of_another_program_is_refused_and_damaged_ledger_is_not_one() {
    let place = Ledgers::with(4);
    let ledger = String::from_utf8(place.work.bytes("l.jsonl")).unwrap();
    let readers: [&[&str]; 6] =
        [&["query"], &["query", "--reverse"], &["stats"], &["audit"], &["verify"], &["verify", "--complete"]];
    let others: [&[&str]; 5] = [&["follow"], &["bundle"], &["repair"], &["append", "m", "-f"], &["tee"]];
    for text in [
        "{\"event\":\"start\"}\n{\"event\":\"end\"}\n",
        "{\"seq\":0,\"event\":\"start\"}\n",
        "{\"id\":1,\"at\":{\"hash\":\"sha256:00\",\"prev\":null}}\n",
        "# A title\n\nA text.\n",
        "[1, 2]\n",
        "[1, 2]",
        "{\"event\":\n\u{0}\n",
    ] {
        place.work.write("f.jsonl", text);
        for words in readers.iter().chain(&others) {
            let words = [*words, &["f.jsonl"]].concat();
            assert_eq!(place.closing(&words, "a line\n", 2)["error"]["code"], "E_VALIDATION", "{words:?} {text:?}");
            assert_eq!(place.work.read("f.jsonl"), text, "{words:?}");
        }
        assert_eq!(place.closing(&["verify", "-"], text, 2)["error"]["code"], "E_VALIDATION", "{text:?}");
        // Beside a ledger it is passed over, and alone it is no proof.
        for verb in ["verify", "audit"] {
            place.sh(&format!("cp-log {verb} .")).success();
            place.sh(&format!("mkdir d; cp f.jsonl d; cp-log {verb} d")).failed(3, "E_NOT_FOUND");
        }
    }
    // Damage, wherever it is, does not make it a file of another program.
    place.sh("rm -r d f.jsonl").success();
    let lines: Vec<&str> = ledger.lines().collect();
    let whole = lines.join("\n");
    for damaged in [
        whole.replacen(lines[0], "x", 1),
        whole.replacen(lines[0], "", 1),
        whole.replace(lines[3], "x").replace(lines[0], "{}"),
        whole.replace(lines[3], "x").replace("{\"seq\":", "{\"sex\":"),
        whole.replace("\"prev\":\"sha256:", "\"prev\":\"sha256:x"),
        whole.replace("\"hash\":\"sha256:", "\"hush\":\"sha256:"),
    ] {
        place.work.write("l.jsonl", damaged.clone() + "\n");
        for words in readers {
            let ran = place.run(&[words, &["l.jsonl"]].concat()).code(1);
            assert_eq!(ran.first_error()["code"], "E_INTEGRITY", "{words:?} {damaged}");
        }
        assert_eq!(place.closing(&["verify", "-"], &(damaged + "\n"), 1)["error"]["code"], "E_INTEGRITY");
        place.sh("cp-log verify .").code(1);
    }
    // Nor does a file of another program in the place of a ledger of a home, or of one that was signed.
    place.sh("cp-log append m && echo text >$CP_HOME/ledger/cp-log.jsonl").success();
    place.sh("cp-log verify </dev/null").failed(1, "E_INTEGRITY");
    place.work.write("l.jsonl", &ledger);
    place.sh("cp-log keygen k && cp-log checkpoint -f l.jsonl --sign-with k && echo text >l.jsonl").success();
    place.sh("cp-log verify .").failed(1, "E_INTEGRITY");
}
