//! Checks that the schema files match the Rust types, and that the contract files match the table of codes. `UPDATE=1`
//! rewrites both.
#![cfg(feature = "schema")]
#![expect(clippy::unwrap_used, reason = "a failure to read or write is a failed test")]

mod shapes;

use std::path::Path;

use cp_common::program::confirm;
use cp_common::program::describe;
use cp_common::wire;
use cp_common::wire::error::{Code, EXITS, Row};
use cp_common::wire::record::SCHEMA_VERSION;
use cp_common::wire::schemas::{of_record, same_or_update};
use schemars::{Schema, schema_for};
use serde_json::{Map, Value, json};

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
fn schema_files_match_types() {
    let schemas: [(&str, Schema); 19] = [
        ("prompt", of_record(schema_for!(wire::Prompt))),
        ("message", of_record(schema_for!(wire::Message))),
        ("delta", of_record(schema_for!(wire::Delta))),
        ("tool_call", of_record(schema_for!(wire::ToolCall))),
        ("tool_result", of_record(schema_for!(wire::ToolResult))),
        ("exec_result", of_record(schema_for!(wire::ExecResult))),
        ("receipt", schema_for!(wire::Receipt)),
        ("preview", schema_for!(confirm::Preview)),
        ("summary", schema_for!(shapes::Summary)),
        ("error", schema_for!(shapes::Failure)),
        ("reference", schema_for!(describe::Reference)),
        ("context", schema_for!(describe::ContextAnswer)),
        ("doctor", schema_for!(describe::Doctor)),
        ("changelog", schema_for!(describe::Changelog)),
        (wire::bundle::BUNDLE, summed(schema_for!(wire::bundle::Head))),
        (wire::bundle::LEDGER, summed(schema_for!(wire::bundle::Ledger))),
        (wire::bundle::LINE, summed(schema_for!(wire::bundle::Line<'_>))),
        (wire::bundle::BLOB, summed(schema_for!(wire::bundle::Blob<'_>))),
        ("completions", schema_for!(describe::Completions)),
    ];
    for (name, schema) in schemas {
        same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
    }
}

/// Adds `sum` to the schema of a bundle record, which ends with the hash of its other members.
fn summed(mut schema: Schema) -> Schema {
    let sum = json!({"description": "The hash of the bytes of this line before this member.", "type": "string"});
    schema.pointer_mut("/properties").unwrap()["sum"] = sum;
    schema.pointer_mut("/required").unwrap().as_array_mut().unwrap().push("sum".into());
    schema
}

fn codes(core: bool) -> Value {
    let rows = Code::ROWS.into_iter().filter(|row| row.core == core);
    Value::Object(
        rows.map(|row| (row.name.to_owned(), json!({"exit": row.exit, "retryable": row.retryable}))).collect(),
    )
}

/// Returns the public contract as far as it is data; its prose is not repeated.
fn public_contract() -> Value {
    let exits: Map<String, Value> =
        EXITS.into_iter().map(|(exit, meaning)| (exit.to_string(), meaning.into())).collect();
    json!({
        "contract_version": "1.0",
        "naming": {"convention": "snake_case"},
        "envelope": {
            "schema_version_value": SCHEMA_VERSION,
            "success_keys": ["ok", "schema_version", "data", "meta"],
            "error_keys": ["ok", "schema_version", "error", "meta"],
            "error_object_keys": ["code", "message", "details", "retryable"],
            "meta_required_keys": ["duration_ms"],
            "meta_optional_keys": ["notices"],
            "enforcement": "exact"
        },
        "error_codes": {
            "enforcement": "exact-for-core",
            "core": codes(true),
            "http_status_map": {
                "401": "E_AUTH", "403": "E_FORBIDDEN", "404": "E_NOT_FOUND", "408": "E_TIMEOUT",
                "409": "E_CONFLICT", "429": "E_RATE_LIMITED", "5xx": "E_SERVER"
            },
            "extension": {"file": "contract-ext.json"}
        },
        "exit_codes": {"enforcement": "exact", "table": exits},
        "self_description": {
            "enforcement": "required-present",
            "reference": {
                "required_top_keys": ["tool", "version", "risk_tier", "release_readiness", "commands", "schemas", "exit_codes", "error_codes"],
                "risk_tier_key": "risk_tier",
                "release_readiness_required_keys": ["level", "fcc_status"]
            },
            "context": {
                "required_top_keys": ["version", "credentials", "notices"],
                "credentials_required_subkeys": ["configured"]
            },
            "doctor": {
                "data_shape": "checks[]",
                "check_item_required_keys": ["check", "status", "fix"],
                "check_item_optional_keys": ["message", "details"]
            },
            "changelog": {
                "required_data_keys": ["current_version", "entries"],
                "optional_data_keys": ["since", "count"],
                "entries_shape": "entries[].{version, date, changes{added,changed,fixed,deprecated,removed,security}}"
            },
            "update": {
                "command_field": "command",
                "required_keys_on_available": ["status", "current_version", "target_version", "update_available", "install_method", "command"]
            }
        },
        "pagination": {
            "enforcement": "required-present-when-listing",
            "cursor_style": ["items", "count", "next_cursor", "has_more"],
            "offset_style": ["items", "count", "offset", "next_offset", "has_more"],
            "truncation_flag": "truncated"
        },
        "batch": {
            "enforcement": "required-present-when-batching",
            "item_required_keys": ["target", "ok"],
            "item_error_key": "error",
            "item_error_shape": ["code", "retryable"],
            "summary_required_keys": ["total", "succeeded", "failed"],
            "summary_optional_keys": ["skipped"]
        },
        "untrusted": {"key": "_untrusted"}
    })
}

#[test]
fn contract_files_match_table() {
    same_contract("contract.json", &public_contract());
    let ours = json!({
        "error_codes": codes(false),
        "x-envelope": {
            "notice_keys": ["type", "severity", "message"],
            "stream_line_keys": ["ok", "schema_version", "type"],
            "stream_end": "summary"
        }
    });
    same_contract("contract-ext.json", &ours);
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
    let mut names: Vec<&str> = Code::ROWS.into_iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Code::ROWS.len());
    for Row { code, .. } in Code::ROWS {
        assert!(EXITS.iter().any(|(exit, _)| *exit == code.row().exit), "{code}");
        assert_eq!(Code::from_name(code.row().name), Some(code));
    }
}
