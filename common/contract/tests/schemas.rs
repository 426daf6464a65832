//! The schemas that are checked in are those of the Rust types, and the contract files are the table. `UPDATE=1` rewrites both.
#![cfg(feature = "schema")]
#![expect(clippy::unwrap_used, reason = "a failure to read or write is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;

use cp_common::program::confirm;
use cp_common::program::describe;
use cp_common::wire;
use cp_common::wire::error::{Code, EXITS};
use cp_common::wire::schemas::same_or_update;
use schemars::{Schema, schema_for};
use serde_json::{Value, json};

fn same_contract(name: &str, value: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let expected = format!("{value:#}\n");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, expected).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name} differs from the table: look at the change, then run with UPDATE=1");
}

#[test]
fn schemas_are_those_of_the_types() {
    let schemas: [(&str, Schema); 13] = [
        ("prompt", schema_for!(wire::Prompt)),
        ("message", schema_for!(wire::Message)),
        ("delta", schema_for!(wire::Delta)),
        ("tool_call", schema_for!(wire::ToolCall)),
        ("tool_result", schema_for!(wire::ToolResult)),
        ("exec_result", schema_for!(wire::ExecResult)),
        ("receipt", schema_for!(wire::Receipt)),
        ("preview", schema_for!(confirm::Preview)),
        ("reference", schema_for!(describe::Reference)),
        ("context", schema_for!(describe::ContextAnswer)),
        ("doctor", schema_for!(describe::Doctor)),
        ("changelog", schema_for!(describe::Changelog)),
        ("completions", schema_for!(describe::Completions)),
    ];
    for (name, schema) in schemas {
        same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
    }
}

fn codes(core: bool) -> Value {
    let rows = Code::ALL.into_iter().map(Code::row).filter(|row| row.core == core);
    Value::Object(
        rows.map(|row| (row.name.to_owned(), json!({"exit": row.exit, "retryable": row.retryable}))).collect(),
    )
}

#[test]
fn the_contract_files_are_the_table() {
    let exits: BTreeMap<String, &str> = EXITS.into_iter().map(|(exit, meaning)| (exit.to_string(), meaning)).collect();
    let contract = json!({
        "schema_version": "1.0",
        "envelope": {
            "success": ["ok", "schema_version", "data", "meta"],
            "failure": ["ok", "schema_version", "error", "meta"],
            "error": ["code", "message", "details", "retryable"],
            "meta": {"required": ["duration_ms"], "optional": ["notices"]},
            "notice": ["type", "severity", "message"],
            "stream_line": ["ok", "schema_version", "type"],
            "stream_end": "summary",
            "untrusted": "_untrusted"
        },
        "error_codes": {"core": codes(true)},
        "exit_codes": exits,
        "self_description": {
            "reference": ["tool", "version", "risk_tier", "release_readiness", "commands", "schemas", "exit_codes", "error_codes"],
            "context": ["version", "credentials"],
            "doctor": ["checks"],
            "changelog": ["current_version", "entries"]
        }
    });
    same_contract("contract.json", &contract);
    same_contract("contract-ext.json", &json!({"schema_version": "1.0", "error_codes": {"ext": codes(false)}}));
}

#[test]
fn names_are_unique_and_every_exit_has_a_meaning() {
    let mut names: Vec<&str> = Code::ALL.into_iter().map(|code| code.row().name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Code::ALL.len());
    for code in Code::ALL {
        assert!(EXITS.iter().any(|(exit, _)| *exit == code.row().exit), "{code}");
        assert_eq!(Code::from_name(code.row().name), Some(code));
    }
}
