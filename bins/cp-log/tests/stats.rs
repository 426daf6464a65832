//! `cp-log stats` and `cp-log blob`, as a shell user meets them.

use crate::ledgers::Ledgers;
use serde_json::json;

const ROWS: &str = concat!(
    r#"{"event":"model_request","agent":"a","session":"S","data":{"model":"m1","usage":{"input_tokens":10,"output_tokens":5,"cache_read_tokens":2,"cost_usd":0.5},"duration_ms":100}}"#,
    "\n",
    r#"{"event":"model_request","agent":"b","data":{"model":"m2","usage":{"input_tokens":1,"output_tokens":1,"cost_usd":null},"duration_ms":300}}"#,
    "\n",
    r#"{"event":"tool_call","agent":"a","data":{"duration_ms":7}}"#,
    "\n"
);

#[test]
fn sums_are_by_event_agent_model_and_session() {
    let place = Ledgers::new();
    place.lines(&["append", "-f", "l.jsonl", "--rows"], ROWS);
    let data = place.closing(&["stats", "l.jsonl"], "", 0)["data"].take();
    assert_eq!(
        (&data["entries"], &data["total"]["input_tokens"], &data["total"]["cost_usd"]),
        (&json!(4), &json!(13), &json!(0.5))
    );
    let event = &data["by_event"][0];
    assert_eq!((&event["name"], &event["count"], &event["timed"]), (&json!("model_request"), &json!(2), &json!(2)));
    assert!(event["p50_ms"].as_f64().unwrap() >= 100.0 && event["p50_ms"].as_f64().unwrap() < 102.1);
    assert_eq!(data["by_model"].as_array().unwrap().len(), 2);
    assert_eq!(place.closing(&["stats", "l.jsonl", "--event", "tool_call"], "", 0)["data"]["entries"], 1);
    let text = place.run(&["stats", "l.jsonl", "--format", "text"]).success();
    let text = text.stdout;
    assert!(text.contains("████") && text.contains("model_request"), "{text}");
    assert_eq!(Ledgers::new().closing(&["stats"], "", 0)["data"]["entries"], 0);
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
