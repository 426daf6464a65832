//! `scripts/otlp.jq`: entries as OpenTelemetry JSON.

use std::process::Command;

use cp_testkit::repository;
use serde_json::{Value, json};

use crate::ledgers::Ledgers;
use crate::work::Work;

/// The spans and the log records of the entries that a query prints.
fn exported(place: &cp_testkit::Place, operands: &str) -> (Vec<Value>, Vec<Value>) {
    let script = repository().join("scripts/otlp.jq");
    let line = format!("cp-log query {operands} --format raw | jq -cn -f {}", script.display());
    let requests = place.sh(&line).success().records();
    let items = |resources: &str, scopes: &str, items: &str| -> Vec<Value> {
        let resources = requests.iter().filter_map(|request| request[resources].as_array()).flatten();
        let items = resources.filter_map(|resource| resource[scopes][0][items].as_array()).flatten();
        items.cloned().collect()
    };
    (items("resourceSpans", "scopeSpans", "spans"), items("resourceLogs", "scopeLogs", "logRecords"))
}

fn attribute(item: &Value, key: &str) -> Value {
    let attributes = item["attributes"].as_array().unwrap();
    attributes.iter().find(|one| one["key"] == key).map_or(Value::Null, |one| one["value"].clone())
}

#[test]
fn every_entry_of_a_home_is_exported_and_its_tokens_are_those_of_stats() {
    let place = Work::new().0;
    let (spans, records) = exported(&place, "");
    let stats = place.run(&["stats"]).success().data();
    assert_eq!(stats["entries"], json!(spans.len() + records.len()));
    let tokens = |name: &str| -> u64 {
        let asked = spans.iter().filter(|span| attribute(span, "gen_ai.operation.name")["stringValue"] == "chat");
        let numbers = asked.map(|span| attribute(span, &format!("gen_ai.usage.{name}"))["intValue"].clone());
        numbers.filter_map(|number| number.as_str()?.parse::<u64>().ok()).sum()
    };
    let sums = [tokens("input_tokens"), tokens("output_tokens")];
    assert_eq!(json!(sums), json!([stats["total"]["input_tokens"], stats["total"]["output_tokens"]]));
    assert!(sums.iter().all(|sum| *sum > 0), "{sums:?}");
    // The run of a model has its span, and the requests of the run are below it.
    let run = spans.iter().find(|span| attribute(span, "gen_ai.operation.name")["stringValue"] == "invoke_agent");
    let run = run.unwrap();
    assert!(spans.iter().any(|span| span["parentSpanId"] == run["spanId"] && span["traceId"] == run["traceId"]));
    assert!(spans.iter().all(|span| span["spanId"].as_str().unwrap().len() == 16));
    let time = |item: &Value, name: &str| item[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(spans.iter().all(|span| time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano")));
}

#[test]
fn a_tool_is_a_span_of_its_name_and_attributes_are_those_of_the_conventions() {
    let place = Ledgers::new();
    place.forged();
    let rows = [
        r#"{"event":"tool_result","run":"R","data":{"id":"c1","name":"weather","is_error":true,"exit_code":3,"duration_ms":0.25}}"#,
        r#"{"event":"llm.response","agent":"a","session":"S","data":{"model":"m","backend":"b","answered_by":"m1","id":"x","stop_reason":"s","stream":true,"code":"E_NETWORK","usage":{"input_tokens":1,"output_tokens":2,"cache_read_tokens":3,"cache_write_tokens":4},"latency_ms":-1}}"#,
    ];
    place.lines(&["append", "-f", "l.jsonl", "--rows"], &rows.join("\n"));
    let (spans, records) = exported(&place, "l.jsonl");
    let (tool, model) = (&spans[0], &records[1]);
    assert_eq!((&tool["name"], &tool["status"]["code"]), (&json!("execute_tool weather"), &json!(2)));
    let time = |name: &str| tool[name].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(time("endTimeUnixNano") - time("startTimeUnixNano"), 250_000);
    assert_eq!(attribute(tool, "error.type"), json!({"stringValue": "_OTHER"}));
    // A time that cannot be: a log record.
    assert_eq!(model["severityNumber"], 17);
    let keys = [tool, model].into_iter().flat_map(|item| item["attributes"].as_array().unwrap());
    let keys = keys.map(|one| one["key"].as_str().unwrap()).filter(|key| !key.starts_with("cp."));
    let names: std::collections::BTreeSet<&str> = keys.collect();
    assert!(names.len() > 15, "{names:?}");
    let python = cp_testkit::packages().join("python/bin/python");
    let module = "opentelemetry.semconv";
    let has = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    let has = has.is_ok_and(|ran| ran.status.success());
    if cp_testkit::required(&format!("the Python module {module} (.ci/run installs it)"), has) {
        let script = "import sys, opentelemetry.semconv._incubating.attributes as of, importlib, pkgutil\n\
            names = {value for module in pkgutil.iter_modules(of.__path__) for value in vars(importlib.import_module(of.__name__ + '.' + module.name)).values() if isinstance(value, str)}\n\
            print(*[name for name in sys.argv[1:] if name not in names])";
        let ran = Command::new(&python).args(["-c", script]).args(names).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "\n");
    }
}
