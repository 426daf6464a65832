//! `cp-log query`, as a shell user meets it.

use crate::ledgers::Ledgers;
use serde_json::{Value, json};

fn filled() -> Ledgers {
    let place = Ledgers::new();
    place.forged();
    let rows = concat!(
        r#"{"event":"turn","agent":"a","session":"S1","message":"one"}"#,
        "\n",
        r#"{"event":"turn","agent":"b","session":"S2","message":"say \"two\"","n":1e2}"#,
        "\n",
        r#"{"event":"tool_call","agent":"a","session":"S1","message":"three","inner":{"event":"turn"}}"#,
        "\n"
    );
    place.lines(&["append", "-f", "l.jsonl", "--rows"], rows);
    place
}

/// The numbers of the lines found, and the closing line.
fn found(place: &Ledgers, arguments: &[&str]) -> (Vec<u64>, Value) {
    let mut lines = place.lines(&[&["query", "l.jsonl"], arguments].concat(), "");
    let closing = lines.pop().unwrap();
    assert!(lines.iter().all(|line| line["type"] == "entry" && line.get("meta").is_none()));
    (lines.iter().map(|line| line["data"]["seq"].as_u64().unwrap()).collect(), closing)
}

#[test]
fn filters_join_and_look_at_their_own_member() {
    let place = filled();
    assert_eq!(found(&place, &[]).0, [0, 1, 2, 3]);
    assert_eq!(found(&place, &["--event", "turn"]).0, [1, 2]);
    assert_eq!(found(&place, &["--event", "turn", "--agent", "a"]).0, [1]);
    assert_eq!(found(&place, &["--session", "S1"]).0, [1, 3]);
    assert_eq!(found(&place, &["--event", "turn", "--event", "ledger.open"]).0, [0, 1, 2]);
    assert_eq!(found(&place, &["--grep", "say \"two\""]).0, [2]);
    assert_eq!(found(&place, &["--grep", "thr(e|x)+"]).0, [3]);
    assert_eq!(found(&place, &["--since", "1h"]).0, [0, 1, 2, 3]);
    assert_eq!(found(&place, &["--until", "2020-01-01"]).0, [0_u64; 0]);
    assert_eq!(found(&place, &["--event", "nothing"]).1["data"]["count"], 0);
}

#[test]
fn raw_gives_the_bytes_of_the_file() {
    let place = filled();
    let done = place.run(&["query", "l.jsonl", "--format", "raw"]).success();
    assert_eq!(done.bytes(), place.work.bytes("l.jsonl"));
}

#[test]
fn fields_project_and_keep_the_text_of_numbers() {
    let place = filled();
    let done = place.run(&["query", "l.jsonl", "--agent", "b", "--fields", "seq,data.n", "--format", "raw"]).success();
    assert_eq!(done.stdout, "{\"seq\":2,\"data\":{\"n\":1e2},\"_untrusted\":[\"/data\"]}\n");
    let closing = place.closing(&["query", "l.jsonl", "--fields", "sequence"], "", 2);
    assert_eq!(closing["error"]["code"], "E_USAGE");
}

#[test]
fn query_reports_unreadable_file_and_reads_the_others() {
    let place = filled();
    for (verb, succeeded) in [("query", json!(2)), ("stats", json!(null))] {
        let lines = place.run(&[verb, "none.jsonl", "l.jsonl", "--event", "turn"]).code(1).records();
        assert_eq!(lines[0]["error"]["code"], "E_NOT_FOUND");
        let closing = &lines.last().unwrap()["error"];
        assert_eq!(closing["code"], "E_PARTIAL", "{lines:?}");
        assert!(succeeded.is_null() || closing["details"]["succeeded"] == succeeded, "{lines:?}");
        assert!(!succeeded.is_null() || lines[1]["data"]["entries"] == 2, "{lines:?}");
        assert_eq!(place.closing(&[verb, "none.jsonl"], "", 3)["error"]["code"], "E_NOT_FOUND");
    }
}

#[test]
fn without_operands_all_of_home_is_read() {
    let place = Ledgers::new();
    place.lines(&["append", "--event", "e", "m"], "");
    let lines = place.lines(&["query", "--event", "e"], "");
    assert_eq!(lines[0]["data"]["message"], json!("m"));
    assert_eq!(Ledgers::new().closing(&["query"], "", 0)["data"]["count"], 0);
}

#[test]
fn eleven_hundred_ledgers_are_all_read_with_few_open_files() {
    let place = Ledgers::new();
    for n in 0..1100 {
        crate::made::ledger(&place, &format!("shards/{n}.jsonl"), &[]);
    }
    for words in ["query --reverse", "query", "verify"] {
        let done = place.sh(&format!("ulimit -n 64; exec cp-log {words} shards")).success();
        assert_eq!(done.records().len(), 1101, "{words}");
        assert_eq!(done.closing()["meta"]["notices"], serde_json::Value::Null, "{words}");
    }
    let sums = place.sh("ulimit -n 64; exec cp-log stats shards").success().data();
    assert_eq!((&sums["entries"], &sums["files"]), (&1100.into(), &1100.into()));
    // The order is that of time, also of ledgers whose files were closed in between.
    for (at, n) in ["7", "1099", "500"].iter().enumerate() {
        let file = format!("shards/{n}.jsonl");
        let time = format!("2026-11-21T03:00:0{}Z", at + 1);
        place.subject().args(["append", "-f", &file, "--event", n, "m"]).now(&time).run().success();
    }
    let done = place.sh("ulimit -n 64; exec cp-log query shards").success();
    let entries = done.records();
    let last: Vec<_> = entries[1100..1103].iter().map(|entry| &entry["data"]["event"]).collect();
    assert_eq!(last, ["7", "1099", "500"]);
    let first = place.sh("ulimit -n 64; exec cp-log query --reverse --limit 3 shards").success().of("entry");
    assert!(first.iter().map(|entry| &entry["event"]).eq(["500", "1099", "7"]), "{first:?}");
}
