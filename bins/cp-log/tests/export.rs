//! `cp-log export` and `verify --dialect`, as a shell user meets them.

use crate::ledgers::Ledgers;
use serde_json::{Value, json};

#[test]
fn what_took_time_is_a_span_and_the_rest_are_log_records() {
    let place = Ledgers::new();
    let row = r#"{"event":"model_request","agent":"a","session":"S","data":{"model":"m","backend":"anthropic","answered_by":"m-1","id":"x","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5},"duration_ms":1500}}"#;
    place.lines(&["append", "-f", "l.jsonl", "--rows"], row);
    let done = place.run(&["export", "--to", "otlp", "--format", "raw", "l.jsonl"]).success();
    let lines = done.records();
    assert_eq!(lines[0]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["eventName"], "ledger.open");
    let scope = &lines[1]["resourceSpans"][0]["scopeSpans"][0];
    assert_eq!(scope["schemaUrl"], "https://opentelemetry.io/schemas/1.37.0");
    let span = &scope["spans"][0];
    assert_eq!((&span["name"], &span["kind"]), (&json!("chat m"), &json!(3)));
    let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(time("endTimeUnixNano") - time("startTimeUnixNano"), 1_500_000_000);
    assert_eq!((span["traceId"].as_str().unwrap().len(), span["spanId"].as_str().unwrap().len()), (32, 16));
    let attributes = span["attributes"].as_array().unwrap();
    let find = |key: &str| {
        attributes.iter().find(|attribute| attribute["key"] == key).map(|attribute| attribute["value"].clone())
    };
    assert_eq!(find("gen_ai.usage.input_tokens"), Some(json!({"intValue": "10"})));
    assert_eq!(
        find("gen_ai.response.finish_reasons"),
        Some(json!({"arrayValue": {"values": [{"stringValue": "end_turn"}]}}))
    );
    assert_eq!(find("gen_ai.conversation.id"), Some(json!({"stringValue": "S"})));
    assert_eq!(find("error.type"), None);
}

/// An entry as the control plane writes it, with Python's spelling.
fn entry(n: u32, previous: &Value) -> (String, String) {
    let previous = previous.to_string();
    let unhashed =
        format!("{{\"event_type\": \"E{n}\", \"metadata\": {{\"a\": 1.5, \"é\": []}}, \"previous_hash\": {previous}}}");
    let hash = cp_ledger::format::Hash::of(unhashed.as_bytes()).hex().to_owned();
    // Written in another order than it is hashed in.
    let line = format!(
        "{{\"previous_hash\": {previous}, \"event_type\": \"E{n}\", \"metadata\": {{\"é\": [], \"a\": 1.5}}, \"entry_hash\": \"{hash}\"}}\n"
    );
    (line, hash)
}

#[test]
fn ledgers_of_the_control_plane_are_proved_and_restarts_told() {
    let place = Ledgers::new();
    let (first, one) = entry(1, &Value::Null);
    let (second, two) = entry(2, &json!(one));
    let (third, _) = entry(3, &json!(two));
    let verify = |text: &str, exit| {
        place.work.write("governance.jsonl", text);
        place.closing(&["verify", "--dialect", "control-plane", "governance.jsonl"], "", exit)
    };
    let good = format!("{first}{second}{third}");
    assert_eq!(verify(&good, 0)["data"]["lines"], 3);
    let kind = |text: &str| verify(text, 1)["error"]["details"]["kind"].as_str().unwrap().to_owned();
    assert_eq!(kind(&good.replace("E2", "EX")), "hash");
    assert_eq!(kind(&format!("{first}{third}")), "chain");
    assert_eq!(kind(&format!("{first}{second}{first}{second}")), "restart");
    assert_eq!(kind("{\"a\":1}\n"), "shape");
    assert_eq!(kind("nonsense\n"), "json");
    place.closing(&["verify", "governance.jsonl"], "", 1);
}
