//! Checks that the schema files match the Rust types, and that the table of codes matches the contract. `UPDATE=1`
//! rewrites schemas and contract-ext.json.
#![cfg(feature = "schema")]

mod shapes;

use std::path::Path;

use cp_common::keys::hash;
use cp_common::program::confirm;
use cp_common::wire;
use cp_common::wire::error::{Code, EXITS, Row};
use cp_common::wire::record::SCHEMA_VERSION;
use cp_testkit::{of_record, same_or_update};
use schemars::{Schema, schema_for};
use serde_json::{Map, Value, json};

#[test]
fn schema_files_match_types() {
    let schemas: [(&str, Schema); 9] = [
        ("prompt", of_record(schema_for!(wire::Prompt))),
        ("message", of_record(schema_for!(wire::Message))),
        ("delta", of_record(schema_for!(wire::Delta))),
        ("tool_call", of_record(schema_for!(wire::ToolCall))),
        ("tool_result", of_record(schema_for!(wire::ToolResult))),
        ("receipt", schema_for!(wire::Receipt)),
        ("preview", schema_for!(confirm::Preview)),
        ("summary", schema_for!(shapes::Summary)),
        ("error", schema_for!(shapes::Failure)),
    ];
    for (name, schema) in schemas {
        same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
    }
}

fn codes(core: bool) -> Value {
    let rows = Code::ROWS.iter().filter(|row| row.core == core);
    Value::Object(
        rows.map(|row| (row.name.to_owned(), json!({"exit": row.exit, "retryable": row.retryable}))).collect(),
    )
}

/// The public contract is a copy of its source, which this repository does not edit; the table of codes follows it.
#[test]
fn table_matches_public_contract() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contract.json");
    let text = std::fs::read(&path).unwrap();
    assert_eq!(
        hash(&text),
        "sha256:6b0127885949b8da13a2979ab1323fbf2dfa93e44814f58e519f65206db20e68",
        "own codes belong in contract-ext.json"
    );
    let public: Value = serde_json::from_slice(&text).unwrap();
    let exits: Map<String, Value> =
        EXITS.into_iter().map(|(exit, meaning)| (exit.to_string(), meaning.into())).collect();
    assert_eq!(public["exit_codes"]["table"], Value::Object(exits));
    assert_eq!(public["error_codes"]["core"], codes(true));
    assert_eq!(public["envelope"]["schema_version_value"], SCHEMA_VERSION);
}

#[test]
fn extension_file_matches_table() {
    let ours = json!({
        "error_codes": codes(false),
        "x-envelope": {
            "notice_keys": ["type", "severity", "message"],
            "stream_line_keys": ["ok", "schema_version", "type"],
            "stream_end": "summary"
        }
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contract-ext.json");
    let expected = format!("{ours:#}\n");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "contract-ext.json differs from the table: look at the change, then run with UPDATE=1");
}

/// The public contract's requirements for extension codes.
#[test]
fn extension_codes_redefine_no_core_code() {
    let core = codes(true);
    for (name, row) in codes(false).as_object().unwrap() {
        assert!(name.starts_with("E_") && core.get(name).is_none(), "{name}");
        assert!(EXITS.iter().any(|(exit, _)| row["exit"] == *exit), "{name}: {row}");
        assert!(!row["retryable"].as_bool().unwrap(), "{name}: exits 1 and 9 are not retried");
    }
}

#[test]
fn names_are_unique_and_every_exit_has_a_meaning() {
    let mut names: Vec<&str> = Code::ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Code::ROWS.len());
    for Row { code, .. } in Code::ROWS {
        assert!(EXITS.iter().any(|(exit, _)| *exit == code.row().exit), "{code}");
        assert_eq!(Code::from_name(code.row().name), Some(*code));
    }
}
