//! `cp-log stats` and `cp-log blob`, as a shell user meets them.

use crate::ledgers::Ledgers;
use serde_json::json;

const ROWS: &str = concat!(
    r#"{"event":"llm.response","agent":"a","session":"S","data":{"model":"m1","usage":{"input_tokens":10,"output_tokens":5,"cache_read_tokens":2,"cost_usd":0.5},"duration_ms":100}}"#,
    "\n",
    r#"{"event":"llm.response","agent":"b","data":{"model":"m2","usage":{"input_tokens":1,"output_tokens":1,"cost_usd":null},"duration_ms":300}}"#,
    "\n",
    r#"{"event":"tool_call","agent":"a","data":{"duration_ms":7}}"#,
    "\n"
);

#[test]
fn sums_are_by_event_agent_model_and_session() {
    let place = Ledgers::new();
    place.forged();
    place.lines(&["append", "-f", "l.jsonl", "--rows"], ROWS);
    let data = place.closing(&["stats", "l.jsonl"], "", 0)["data"].take();
    assert_eq!(
        (&data["entries"], &data["total"]["input_tokens"], &data["total"]["cost_usd"]),
        (&json!(4), &json!(13), &json!(0.5))
    );
    let event = &data["by_event"][0];
    assert_eq!((&event["name"], &event["count"], &event["timed"]), (&json!("llm.response"), &json!(2), &json!(2)));
    assert!(event["mean_ms"].as_f64().unwrap() >= 100.0 && event["max_ms"].as_f64().unwrap() >= 100.0, "{event}");
    assert_eq!(data["by_model"].as_array().unwrap().len(), 2);
    assert_eq!(place.closing(&["stats", "l.jsonl", "--event", "tool_call"], "", 0)["data"]["entries"], 1);
    let text = place.run(&["stats", "l.jsonl", "--format", "text"]).success();
    let text = text.stdout;
    assert!(text.contains("llm.response") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(Ledgers::new().closing(&["stats"], "", 0)["data"]["entries"], 0);
}

#[test]
fn usage_counts_once_whichever_entries_repeat_it() {
    let entry = |event: &str| {
        let usage = json!({"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.3});
        json!({"event": event, "agent": "a", "session": "S", "data": {"model": "m", "usage": usage}}).to_string() + "\n"
    };
    for repeated in ["message", "run_end", "iteration", "agent.result", "anything"] {
        let place = Ledgers::new();
        place.forged();
        place.lines(&["append", "-f", "l.jsonl", "--rows"], &(entry("llm.response") + &entry(repeated)));
        let data = place.closing(&["stats", "l.jsonl"], "", 0)["data"].take();
        for sum in [&data["total"], &data["by_agent"][0], &data["by_model"][0], &data["by_session"][0]] {
            let found = (&sum["input_tokens"], &sum["output_tokens"], &sum["cost_usd"]);
            assert_eq!(found, (&json!(100), &json!(10), &json!(0.3)), "{repeated}: {data}");
        }
    }
    // A cost that nobody knows is not zero.
    let place = Ledgers::new();
    place.forged();
    let unknown = r#"{"event":"llm.response","data":{"usage":{"input_tokens":1}}}"#;
    place.lines(&["append", "-f", "l.jsonl", "--rows"], unknown);
    assert_eq!(place.closing(&["stats", "l.jsonl"], "", 0)["data"]["total"]["cost_usd"], json!(null));
}

#[test]
fn each_line_of_ledgers_and_their_copies_counts_once_and_copies_are_named() {
    let place = Ledgers::new();
    place.forged();
    std::fs::create_dir(place.path("d")).unwrap();
    place.lines(&["append", "-f", "d/l.jsonl", "--rows"], ROWS);
    place.lines(&["rotate", "d/l.jsonl"], "");
    std::fs::create_dir(place.path("e")).unwrap();
    for name in ["l.00000000000000000000.jsonl", "l.jsonl"] {
        std::fs::copy(place.path(&format!("d/{name}")), place.path(&format!("e/{name}"))).unwrap();
    }
    let sums = |files: &[&str], more: &[&str]| {
        let closing = place.closing(&[&["stats"], files, more].concat(), "", 0);
        (closing["data"].clone(), closing["meta"]["notices"].clone())
    };
    let (alone, quiet) = sums(&["d"], &[]);
    assert_eq!((&alone["entries"], &alone["repeated"], quiet), (&json!(6), &json!(0), json!(null)));
    // One that went on after it was copied has its own lines counted, whichever comes first.
    place.lines(&["append", "-f", "d/l.jsonl", "--rows"], ROWS);
    place.ledger("other.jsonl", 2);
    for files in [&["d", "e"][..], &["e", "d"], &["d", "e", "d/l.jsonl"], &["d", "e/l.00000000000000000000.jsonl"]] {
        let (both, notices) = sums(files, &[]);
        assert_eq!((&both["entries"], &both["total"]["cost_usd"]), (&json!(9), &json!(1.0)), "{files:?}");
        assert_eq!(notices.as_array().unwrap().len(), 1);
        let message = notices[0]["message"].as_str().unwrap();
        assert!(message.contains("d/l.jsonl") && message.contains("e/l.jsonl"), "{message}");
        let (some, _) = sums(files, &["--event", "tool_call"]);
        assert_eq!(some["entries"], 2, "{files:?}");
    }
    // Positive control: what has another name counts.
    assert_eq!(sums(&["d", "other.jsonl"], &[]), sums(&["other.jsonl", "d"], &[]));
    assert_eq!(sums(&["d", "other.jsonl"], &[]).0["entries"], 11);
    // A closed segment that lies elsewhere is no copy.
    std::fs::remove_file(place.path("d/l.00000000000000000000.jsonl")).unwrap();
    let (parts, quiet) = sums(&["d", "e/l.00000000000000000000.jsonl"], &[]);
    assert_eq!((&parts["entries"], quiet), (&json!(9), json!(null)));
    for (words, count) in [(&["query"][..], 15), (&["query", "--reverse"], 15)] {
        std::fs::copy(place.path("e/l.00000000000000000000.jsonl"), place.path("d/l.00000000000000000000.jsonl"))
            .unwrap();
        let records = place.lines(&[words, &["d", "e"]].concat(), "");
        assert_eq!(records.len() - 1, count, "{words:?}");
        assert_eq!(records[count]["meta"]["notices"][0]["type"], "origin_twice", "{words:?}");
    }
    assert_eq!(place.closing(&["verify", "d", "e"], "", 0)["meta"]["notices"][0]["type"], "origin_twice");
}

#[test]
fn a_blob_comes_back_by_its_hash() {
    let place = Ledgers::new();
    place.lines(&["append", "-f", "l.jsonl"], &"x".repeat(2 << 20));
    let hash = place.stored("l.jsonl")[1]["message"]["blob"].as_str().unwrap().to_owned();
    let data = place.closing(&["blob", "-f", "l.jsonl", &hash], "", 0)["data"].take();
    assert_eq!((data["len"].as_u64(), data["text"].as_str().map(str::len)), (Some(2 << 20), Some(2 << 20)));
    let raw = place.run(&["blob", "-f", "l.jsonl", &hash, "--format", "raw"]).success();
    assert_eq!(raw.stdout, "x".repeat(2 << 20));
    std::fs::write(place.path("l.jsonl.blobs").join(&hash[7..]), "y").unwrap();
    place.closing(&["blob", "-f", "l.jsonl", &hash], "", 1);
    place.closing(&["blob", "-f", "l.jsonl", &"0".repeat(64)], "", 3);
    place.closing(&["blob", "-f", "l.jsonl", "zz"], "", 2);
}
