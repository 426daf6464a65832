//! `cp-log append`, as a shell user meets it.

use crate::ledgers::Ledgers;
use serde_json::json;

#[test]
fn one_entry_gives_its_receipt() {
    let place = Ledgers::new();
    let words = r#"-f l.jsonl --event deploy --agent a --session S --data '{ "n" : 1e400 }' live"#;
    let answer = place.sh(&format!("cp-log append {words}")).success().closing();
    assert_eq!((&answer["data"]["ledger"], &answer["data"]["seq"]), (&json!(place.path("l.jsonl")), &json!(1)));
    let text = place.work.read("l.jsonl");
    let line = text.lines().nth(1).unwrap();
    assert!(
        line.contains(r#","event":"deploy","agent":"a","session":"S","message":"live","data":{"n":1e400},"prev":"#),
        "{line}"
    );
    assert!(line.ends_with(&format!("\"hash\":{}}}", answer["data"]["hash"])));
}

#[test]
fn the_hash_is_that_of_public_tools() {
    let place = Ledgers::with(5);
    let script = "sed -n 3p l.jsonl | head -c -83 | sha256sum | cut -c1-64";
    let sum = place.program("sh").args(["-c", script]).run().stdout;
    assert_eq!(place.stored("l.jsonl")[2]["hash"], format!("sha256:{}", sum.trim()));
}

#[test]
fn each_line_is_an_entry_and_the_closing_line_has_the_first_and_the_last() {
    let place = Ledgers::new();
    let closing = place.closing(&["append", "-f", "l.jsonl", "--event", "tick"], "a\r\n\nb\nc", 0);
    assert_eq!(closing["type"], "summary");
    assert_eq!(closing["data"]["total"], 3);
    assert_eq!((&closing["data"]["first"]["seq"], &closing["data"]["last"]["seq"]), (&json!(1), &json!(3)));
    let stored = place.stored("l.jsonl");
    assert_eq!(closing["data"]["last"]["hash"], stored[3]["hash"]);
    assert_eq!(stored[1..].iter().map(|line| line["message"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn each_kind_of_input_becomes_the_members_of_entries() {
    let rows = &["--rows", "--agent", "b"][..];
    let message = r#""type":"message","data":{"id":"m1","role":"assistant","content":"hi","event":"x"}}"#;
    let summary = r#""type":"summary","data":{},"meta":{"duration_ms":1}}"#;
    let records = [message, summary].map(|rest| format!(r#"{{"ok":true,"schema_version":"1.0",{rest}"#)).join("\n");
    let lifted = json!({"seq": 7, "hash": "h", "k": 1, "extra": [1]});
    for (words, input, expected) in [
        (
            &[][..],
            records.as_bytes(),
            json!([{"event": "message", "role": "assistant", "content": "hi", "data": {"id": "m1", "event": "x"}}]),
        ),
        (
            rows,
            br#"{"seq":7,"hash":"h","event":"x","agent":"a","message":"m","data":{"k":1},"extra":[1]}"#,
            json!([{"event": "x", "agent": "b", "message": "m", "data": lifted}]),
        ),
        // As Python and PHP write it, and a lone surrogate.
        (rows, br#"{"message": "caf\u00e9 \ud83d\ude00"}"#, json!([{"message": "caf\u{e9} \u{1f600}"}])),
        (rows, br#"{"message":"a\/b"}"#, json!([{"message": "a/b"}])),
        (rows, br#"{"message":"\ud800"}"#, json!([{"message": "\u{fffd}", "data": {"replaced": 1}}])),
    ] {
        let place = Ledgers::new();
        place.forged();
        place.feed(&[&["append", "-f", "l.jsonl"], words].concat(), input).success();
        let stored = place.stored("l.jsonl").split_off(1);
        assert_eq!(stored.len(), expected.as_array().unwrap().len());
        for (line, members) in stored.iter().zip(expected.as_array().unwrap()) {
            for (name, value) in members.as_object().unwrap() {
                assert_eq!(&line[name], value, "{line}");
            }
        }
        place.closing(&["verify", "l.jsonl"], "", 0);
    }
    // An integer that no float can hold.
    let place = Ledgers::new();
    place.closing(&["append", "-f", "l.jsonl", "--rows"], r#"{"n": 123456789012345678901234567890}"#, 0);
    assert!(place.work.read("l.jsonl").contains(r#""data":{"n":123456789012345678901234567890}"#));
}

#[test]
fn invalid_json_item_fails_alone() {
    let place = Ledgers::new();
    let deep = "[".repeat(100) + &"]".repeat(100);
    let rows = format!("{{\"a\":1,\"a\":2}}\n{{\"ok\":1}}\n{{\"d\":{deep}}}\n{{\"x\":{{\"y\":1,\"y\":2}}}}\n");
    let closing = place.closing(&["append", "-f", "l.jsonl", "--rows"], &rows, 1);
    let details = &closing["error"]["details"];
    assert_eq!((&details["succeeded"], &details["failed"]), (&json!(1), &json!(3)));
    assert_eq!(place.stored("l.jsonl").len(), 2);
    place.closing(&["append", "-f", "l.jsonl", "--rows", "--strict-exit"], &rows, 1);
    assert_eq!(place.closing(&["append", "-f", "l.jsonl", "--data", "[1]"], "", 2)["error"]["code"], "E_VALIDATION");
}

#[test]
fn closing_line_counts_the_entries_that_are_on_the_ledger() {
    let rows = (0..5000).map(|n| format!("{{\"message\":\"row {n}\"}}\n")).collect::<Vec<_>>().concat();
    let stopped = "--rows --row-failures stop".to_owned();
    for (input, options, blocks) in [
        (rows.clone(), "--rows".to_owned(), "2048"),
        (rows.clone(), "--rows".to_owned(), "256"),
        (rows.clone(), "--rows --sync line".to_owned(), "256"),
        (rows.clone(), "--rows".to_owned(), "unlimited"),
        ("{\"message\":\"a\"}\n{bad\n{\"message\":\"c\"}\n".to_owned(), stopped.clone(), "unlimited"),
        (rows.replace("row 4000\"}", "row 4000"), stopped, "unlimited"),
    ] {
        let place = Ledgers::new();
        place.work.write("in", &input);
        let ran = place.sh(&format!("ulimit -f {blocks}; cp-log append -f l.jsonl {options} < in"));
        let closing = ran.closing();
        let details = if ran.status == 0 { &closing["data"] } else { &closing["error"]["details"] };
        let stored = place.stored("l.jsonl");
        assert_eq!(details["succeeded"], stored.len() - 1, "{options} {blocks}: {closing}");
        assert_eq!(details["last"]["seq"].as_u64().unwrap_or(0), stored.len() as u64 - 1, "{closing}");
    }
}

#[test]
fn bad_bytes_are_kept_as_a_blob() {
    let place = Ledgers::new();
    place.feed(&["append", "-f", "l.jsonl"], b"a\xffb\n").success();
    let stored = place.stored("l.jsonl").remove(1);
    assert_eq!(stored["message"], "a\u{fffd}b");
    assert_eq!((&stored["data"]["replaced"], &stored["data"]["original"]["len"]), (&json!(1), &json!(3)));
    let name = stored["data"]["original"]["blob"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert_eq!(std::fs::read(place.path("l.jsonl.blobs").join(name)).unwrap(), b"a\xffb");
}

#[test]
fn failures_have_their_exits() {
    let place = Ledgers::new();
    place.closing(&["append", "-f", "l.jsonl", "a", "b"], "", 2);
    place.closing(&["append", "-f", "l.jsonl"], "", 2);
    place.closing(&["append", "-f", ".", "m"], "", 1);
    place.closing(&["append", "-f", "l.jsonl", "--request-id", "r"], "a\n", 2);
    // The effect was finished before the failure to tell of it.
    place.sh("cp-log append -f l.jsonl m >/dev/full").code(1);
    assert_eq!(place.stored("l.jsonl").len(), 2);
}

#[test]
fn a_line_is_written_before_the_input_ends() {
    let place = Ledgers::new();
    let mut child = place.subject().args(["append", "-f", "l.jsonl"]).start();
    child.write("first\n");
    cp_testkit::until("the line", || place.work.read_if_there("l.jsonl").contains("first"));
    child.finish().success();
}

#[test]
fn a_copy_of_a_copy_keeps_every_line_that_was() {
    let place = Ledgers::new();
    place.ledger("a.jsonl", 2);
    for (from, to) in [("a.jsonl", "b.jsonl"), ("b.jsonl", "c.jsonl"), ("c.jsonl", "d.jsonl")] {
        let records = place.run(&["query", from, "--event", "tick"]).success();
        let records = records.stdout;
        place.lines(&["append", "-f", to], &records);
    }
    let first = place.stored("a.jsonl").remove(1);
    let last = place.stored("d.jsonl").remove(1);
    assert_eq!(last["message"], "line 1");
    assert_eq!(last["data"]["data"]["data"]["hash"], first["hash"]);
}

#[test]
fn nothing_is_appended_to_a_file_that_a_tree_holds_to_be_pristine() {
    let place = Ledgers::new();
    place.work.write("t/config/governed_roots.json", r#"{"governed_roots":["governed_prompts"]}"#);
    place.work.write("t/governed_prompts/p.md", "text");
    std::os::unix::fs::symlink("t/governed_prompts", place.work.join("link")).unwrap();
    for file in ["t/governed_prompts/p.md", "t/governed_prompts/new", "link/new", "../home/specs/l.jsonl"] {
        let answer = place.closing(&["append", "-f", file, "x"], "", 4);
        assert_eq!(answer["error"]["details"]["class"], "PRISTINE", "{file}: {answer}");
    }
    assert_eq!(place.work.read("t/governed_prompts/p.md"), "text");
    place.closing(&["append", "-f", "t/own.jsonl", "x"], "", 0);
}

#[test]
fn own_secrets_are_looked_for_in_what_strings_say_and_nowhere_else() {
    let place = Ledgers::new();
    place.forged();
    let data = r#"{"account":123456789012,"nothing12345":"a\nothing12345 session_turn","t":"123456789012"}"#;
    let arguments = ["append", "-f", "l.jsonl", "--event", "session_turn", "--data", data, "password=hunter22"];
    let ran = place.subject().args(arguments).env("MY_PASSWORD", "123456789012").env("MY_TOKEN", "session_turn");
    ran.env("MY_SECRET", "nothing12345").run().success();
    assert_eq!(place.closing(&["verify", "l.jsonl"], "", 0)["ok"], true);
    let stored = place.stored("l.jsonl").remove(1);
    assert_eq!(stored["event"], "session_turn");
    let expected = json!({
        "account": 123_456_789_012_u64,
        "nothing12345": "a\nothing12345 [REDACTED:own_secret]",
        "t": "[REDACTED:own_secret]",
        "redactions": 3,
    });
    assert_eq!((&stored["data"], &stored["message"]), (&expected, &"password=[REDACTED:assignment]".into()));
}

#[test]
fn append_creates_directories_only_in_home() {
    let place = Ledgers::new();
    for path in ["typo/l.jsonl", "typo/deep/l.jsonl"] {
        let error = place.closing(&["append", "-f", path, "m"], "", 3);
        let hint = error["error"]["details"]["hint"].as_str().unwrap();
        assert!(hint.starts_with("mkdir -p /") && hint.contains("typo"), "{error}");
        assert!(!place.path("typo").exists());
    }
    std::fs::create_dir(place.path("made")).unwrap();
    place.closing(&["append", "-f", "made/l.jsonl", "m"], "", 0);
    let inside = place.home.join("ledger/new/l.jsonl");
    place.closing(&["append", "-f", inside.to_str().unwrap(), "m"], "", 0);
    assert!(inside.exists());
}

#[test]
fn failure_of_home_is_reported_once() {
    let place = Ledgers::new();
    let ran = place.subject().args(["append", "m"]).env("CP_HOME", "/dev/null/x").run();
    assert_eq!((ran.status, ran.stderr.lines().count()), (1, 1), "{ran:?}");
    // Another cause has a warning of its own.
    let ran = place.subject().args(["append", "-f", "none/x", "m"]).env("CP_HOME", "/dev/null/x").run();
    assert!(ran.stderr.contains("is not on the ledger") && ran.stderr.contains("no such"), "{ran:?}");
}
