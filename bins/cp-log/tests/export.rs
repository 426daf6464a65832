//! `cp-log export`, as a shell user meets it.

use std::path::PathBuf;
use std::process::Command;

use crate::ledgers::Ledgers;
use serde_json::{Value, json};

/// The Python of the counterparts.
struct Python(PathBuf);

impl Python {
    /// If it has this module.
    fn with(module: &str) -> Option<Self> {
        let python = Self(cp_testkit::packages().join("python/bin/python"));
        let imported = Command::new(&python.0).args(["-c", &format!("import {module}")]).output();
        let is_there = imported.is_ok_and(|ran| ran.status.success());
        cp_testkit::required(&format!("the Python module {module} (.ci/run installs it)"), is_there).then_some(python)
    }

    /// What a script prints.
    #[track_caller]
    fn run(&self, script: &str, arguments: &[String]) -> String {
        let ran = Command::new(&self.0).args(["-c", script]).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    }
}

#[test]
fn export_makes_spans_of_timed_entries_and_log_records_of_others() {
    let place = Ledgers::new();
    let row = r#"{"event":"model_request","agent":"a","session":"S","data":{"model":"m","backend":"anthropic","answered_by":"m-1","id":"x","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5},"duration_ms":1500}}"#;
    place.lines(&["append", "-f", "l.jsonl", "--rows"], row);
    let done = place.run(&["export", "--format", "raw", "l.jsonl"]).success();
    let lines = done.records();
    assert_eq!(lines[0]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["eventName"], "ledger.open");
    let scope = &lines[1]["resourceSpans"][0]["scopeSpans"][0];
    assert_eq!(scope["schemaUrl"], "https://opentelemetry.io/schemas/gen-ai/1.42.0");
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
    // The names are in the registry of the conventions, as their Python package has it.
    if let Some(python) = Python::with("opentelemetry.semconv") {
        let script = "import sys, opentelemetry.semconv._incubating.attributes as of, importlib, pkgutil\n\
            names = {value for module in pkgutil.iter_modules(of.__path__) for value in vars(importlib.import_module(of.__name__ + '.' + module.name)).values() if isinstance(value, str)}\n\
            print(*[name for name in sys.argv[1:] if name not in names])";
        assert_eq!(python.run(script, &seen), "\n");
    }
    assert!(seen.len() > 15, "{seen:?}");
}

#[test]
fn run_is_the_span_of_an_agent_in_which_its_calls_are() {
    let place = Ledgers::new();
    let rows = [
        r#"{"event":"run_start","run":"R","agent":"ada"}"#,
        r#"{"event":"llm.request","run":"R","data":{"model":"m","stream":true}}"#,
        r#"{"event":"llm.response","run":"R","data":{"model":"m","duration_ms":3,"first_token_ms":250}}"#,
        r#"{"event":"run_end","run":"R","agent":"ada","data":{"status":"limit","tally":{"usage":{"input_tokens":7}}}}"#,
        r#"{"event":"run_end","run":"other","data":{"status":"completed"}}"#,
    ];
    place.lines(&["append", "-f", "l.jsonl", "--rows"], &rows.join("\n"));
    let lines = place.run(&["export", "--format", "raw", "l.jsonl"]).success().records();
    let span = |n: usize| lines[n]["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone();
    let log = |n: usize| lines[n]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0].clone();
    let (agent, model) = (span(4), span(3));
    assert_eq!(
        (&agent["name"], &agent["kind"], &agent["parentSpanId"]),
        (&json!("invoke_agent ada"), &json!(1), &json!(""))
    );
    assert_eq!(agent["status"]["code"], 2, "a run that does not complete is an error");
    assert_eq!((&model["parentSpanId"], &model["traceId"]), (&agent["spanId"], &agent["traceId"]));
    assert_eq!((&log(1)["spanId"], &log(1)["eventName"]), (&agent["spanId"], &json!("run_start")));
    let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(time(&agent, "startTimeUnixNano"), time(&log(1), "timeUnixNano"));
    assert!(time(&agent, "endTimeUnixNano") >= time(&model, "endTimeUnixNano"));
    let has = |item: &Value, key: &str, value: Value| {
        item["attributes"].as_array().unwrap().contains(&json!({"key": key, "value": value}))
    };
    assert!(has(&agent, "gen_ai.operation.name", json!({"stringValue": "invoke_agent"})), "{agent}");
    assert!(has(&agent, "gen_ai.usage.input_tokens", json!({"intValue": "7"})), "{agent}");
    assert!(has(&model, "gen_ai.response.time_to_first_chunk", json!({"doubleValue": 0.25})), "{model}");
    assert!(has(&log(2), "gen_ai.request.stream", json!({"boolValue": true})), "{}", log(2));
    // Without its start the end of a run is a log record, and no entry has an empty body.
    assert_eq!(log(5)["eventName"], "run_end");
    assert!(lines.iter().all(|line| !line.to_string().contains("\"body\":null")));
}

/// Verifies an envelope with a public key of `keygen`, and prints its statement.
const VERIFY: &str = r"
import base64, json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
name, number, key = open(sys.argv[1]).read().strip().split('+', 2)
key = base64.b64decode(key)[1:].hex()
envelope = Envelope.from_dict(json.load(open(sys.argv[2])))
envelope.verify([SSlibKey(name + '+' + number, 'ed25519', 'ed25519', {'public': key})], 1)
print(envelope.payload.decode())
";

#[test]
fn statement_is_verified_by_an_independent_implementation() {
    let Some(python) = Python::with("securesystemslib.dsse") else { return };
    let place = Ledgers::new();
    place.ledger("l.jsonl", 12);
    place.lines(&["rotate", "l.jsonl"], "");
    place.ledger("m.jsonl", 3);
    place.lines(&["keygen", "K", "--signer", "example.com/log"], "");
    place.lines(&["keygen", "other"], "");
    place.run(&["bundle", "l.jsonl", "-o", "b.jsonl"]).success();
    let path = |name: &str| place.path(name).display().to_string();
    for files in [&["m.jsonl"][..], &["l.jsonl", "m.jsonl"], &["b.jsonl"]] {
        let made = place
            .run(&[&["export", "--as", "in-toto", "--sign-with", "K", "--format", "raw"], files].concat())
            .success();
        place.work.write("s.json", &made.stdout);
        let statement: Value = serde_json::from_str(&python.run(VERIFY, &[path("K.pub"), path("s.json")])).unwrap();
        assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
        for (subject, file) in statement["subject"].as_array().unwrap().iter().zip(files) {
            // Closed files of a ledger come before the open one.
            let closed = file.replace(".jsonl", ".0*.jsonl");
            let sum = place.sh(&format!("cat $(ls {closed} 2>/dev/null) {file} | sha256sum")).success().stdout;
            assert_eq!(
                (&subject["name"], &subject["digest"]["sha256"]),
                (&json!(file), &json!(sum.split(' ').next().unwrap()))
            );
        }
        assert_eq!(statement["subject"].as_array().unwrap().len(), files.len());
        let tip = place.run(&["tip", files[files.len() - 1]]);
        if tip.status == 0 {
            assert_eq!(
                statement["predicate"]["ledgers"][files.len() - 1]["size"],
                json!(tip.data()["seq"].as_u64().unwrap() + 1)
            );
        }
        // Another key, another payload.
        let refused =
            |key: &str| Command::new(&python.0).args(["-c", VERIFY, &path(key), &path("s.json")]).output().unwrap();
        assert!(!refused("other.pub").status.success());
        let forged = made.stdout.replacen("\"payload\":\"e", "\"payload\":\"f", 1);
        place.work.write("s.json", forged);
        assert!(!refused("K.pub").status.success());
    }
    place.run(&["export", "--as", "in-toto", "m.jsonl"]).failed(2, "E_USAGE");
    place.work.write("m.jsonl", place.work.read("m.jsonl").replacen("line 1", "line 2", 1));
    let damaged = ["export", "--as", "in-toto", "--sign-with", "K", "m.jsonl"];
    assert_eq!(place.run(&damaged).code(1).closing()["error"]["code"], "E_INTEGRITY");
}
