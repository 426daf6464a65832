//! `cp-log export`, as a shell user meets it.

use crate::ledgers::Ledgers;
use serde_json::{Value, json};

#[test]
fn export_makes_spans_of_timed_entries_and_log_records_of_others() {
    let place = Ledgers::new();
    let row = r#"{"event":"model_request","agent":"a","session":"S","data":{"model":"m","backend":"anthropic","answered_by":"m-1","id":"x","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5},"duration_ms":1500}}"#;
    place.lines(&["append", "-f", "l.jsonl", "--rows"], row);
    let done = place.run(&["export", "--format", "raw", "l.jsonl"]).success();
    let lines = done.records();
    assert_eq!(lines[0]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["eventName"], "ledger.open");
    let scope = &lines[1]["resourceSpans"][0]["scopeSpans"][0];
    assert_eq!(scope["schemaUrl"], "https://opentelemetry.io/schemas/1.41.0");
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

#[test]
fn export_batch_names_the_ledger_of_each_entry() {
    let place = Ledgers::new();
    let rows = |count: usize| {
        let row = |n: usize| format!("{{\"event\":\"e\",\"data\":{{\"n\":{n}{}}}}}", [",\"duration_ms\":5", ""][n % 2]);
        (0..count).map(row).collect::<Vec<_>>().join("\n")
    };
    let origins = ["a", "b"].map(|name| {
        let file = format!("{name}.jsonl");
        place.lines(&["append", "-f", &file, "--rows"], &rows(10));
        place.stored(&file)[0]["data"]["origin"].clone()
    });
    let told = |batch: &str| {
        let words = ["export", "--batch-size", batch, "a.jsonl", "b.jsonl"];
        let mut found = Vec::new();
        let mut sizes = Vec::new();
        let records = place.lines(&words, "");
        for request in records.iter().filter(|record| record["type"] == "item").map(|record| &record["data"]) {
            assert_eq!(request.as_object().unwrap().len(), 1, "one signal a request");
            let (resources, scopes, items) = match request.get("resourceSpans") {
                Some(resources) => (resources, "scopeSpans", "spans"),
                None => (&request["resourceLogs"], "scopeLogs", "logRecords"),
            };
            let before = found.len();
            for resource in resources.as_array().unwrap() {
                let attributes = resource["resource"]["attributes"].as_array().unwrap();
                assert_eq!((attributes.len(), &attributes[1]["key"]), (2, &json!("service.instance.id")));
                for item in resource[scopes][0][items].as_array().unwrap() {
                    let seq = item["attributes"].as_array().unwrap();
                    let seq = seq.iter().find(|one| one["key"] == "cp.ledger.seq").unwrap();
                    let origin = attributes[1]["value"]["stringValue"].clone();
                    found.push((items, origin.to_string(), seq["value"]["intValue"].to_string()));
                }
            }
            sizes.push((items, found.len() - before));
        }
        assert_eq!(records.last().unwrap()["data"]["succeeded"], 22);
        found.sort();
        (found, sizes)
    };
    let (one, sizes) = told("1");
    assert!(sizes.iter().all(|(_, size)| *size == 1));
    let second = origins[1].to_string();
    assert_eq!(one.iter().filter(|(_, origin, _)| *origin == second).count(), 11);
    let (many, sizes) = told("4");
    assert_eq!(many, one);
    let of = |kind: &str| sizes.iter().filter(|(found, _)| *found == kind).map(|(_, size)| *size).collect::<Vec<_>>();
    assert_eq!((of("spans"), of("logRecords")), (vec![4, 4, 2], vec![4, 4, 4]));
    assert_eq!(told("100000").1, [("spans", 10), ("logRecords", 12)]);
    for wrong in ["0", "100001", "x"] {
        place.run(&["export", "--batch-size", wrong, "a.jsonl"]).failed(2, "E_USAGE");
    }
}

/// The names of these conventions, as their registry has them at version 1.41.0.
const NAMES: [&str; 15] = [
    "error.type",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.tool.call.id",
    "gen_ai.tool.name",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
];

#[test]
fn a_tool_is_a_span_of_its_name_and_a_fraction_of_a_millisecond_counts() {
    let place = Ledgers::new();
    let rows = [
        r#"{"event":"tool_result","run":"R","data":{"id":"c1","name":"weather","is_error":true,"exit_code":3,"duration_ms":0.25}}"#,
        r#"{"event":"exec.result","data":{"id":"c2","name":"n","latency_ms":12.5}}"#,
        r#"{"event":"llm.response","agent":"a","session":"S","data":{"model":"m","backend":"b","answered_by":"m1","id":"x","stop_reason":"s","code":"E_NETWORK","usage":{"input_tokens":1,"output_tokens":2,"cache_read_tokens":3,"cache_write_tokens":4},"latency_ms":-1}}"#,
    ];
    place.lines(&["append", "-f", "l.jsonl", "--rows"], &rows.join("\n"));
    let lines = place.run(&["export", "--format", "raw", "l.jsonl"]).success().records();
    let attributes = |value: &Value| -> Vec<(String, Value)> {
        let given = value["attributes"].as_array().unwrap();
        given.iter().map(|given| (given["key"].as_str().unwrap().to_owned(), given["value"].clone())).collect()
    };
    let find = |value: &Value, key: &str| {
        attributes(value).into_iter().find(|(found, _)| found == key).map(|(_, value)| value)
    };
    let span = |n: usize| lines[n]["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone();
    let lasted = |span: &Value| {
        let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
        time("endTimeUnixNano") - time("startTimeUnixNano")
    };
    let tool = span(1);
    assert_eq!(
        (&tool["name"], &tool["kind"], &tool["status"]["code"]),
        (&json!("execute_tool weather"), &json!(1), &json!(2))
    );
    assert_eq!(lasted(&tool), 250_000);
    assert_eq!(find(&tool, "gen_ai.tool.name"), Some(json!({"stringValue": "weather"})));
    assert_eq!(find(&tool, "gen_ai.tool.call.id"), Some(json!({"stringValue": "c1"})));
    assert_eq!(find(&tool, "error.type"), Some(json!({"stringValue": "_OTHER"})));
    assert_eq!(find(&tool, "cp.duration_ms"), Some(json!({"doubleValue": 0.25})));
    let other = span(2);
    assert_eq!((&other["name"], lasted(&other)), (&json!("exec.result"), 12_500_000));
    assert_eq!((find(&other, "gen_ai.tool.name"), find(&other, "gen_ai.response.id")), (None, None));
    // A time that cannot be: a log record.
    let record = &lines[3]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(record["severityNumber"], 17);
    let mut seen: Vec<String> = [&tool, &other, record].into_iter().flat_map(attributes).map(|(key, _)| key).collect();
    seen.retain(|key| !key.starts_with("cp."));
    seen.sort();
    seen.dedup();
    assert_eq!(seen, NAMES);
}
