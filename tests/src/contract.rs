//! The contract on the wire, read from the checked-in files and not from the code.

use cp_testkit::{Outcome, repository};
use serde_json::Value;

/// Checks that the output keeps the contract: every line an envelope with exact keys, `meta` on the last line and only
/// there, codes and exit as the table says. The table is read from the checked-in files, not from the code.
pub fn check_contract(ran: &Outcome) {
    let lines = ran.records();
    assert!(!lines.is_empty(), "no output\n{ran:?}");
    let last = lines.len() - 1;
    for (at, line) in lines.iter().enumerate() {
        check_envelope(line, at == last);
    }
    let closing = &lines[last];
    assert_eq!(
        closing["ok"] == Value::Bool(true),
        ran.status == 0,
        "closing ok and exit {} disagree: {closing}",
        ran.status
    );
    if let Some(code) = closing["error"]["code"].as_str() {
        assert_eq!(i64::from(ran.status), table_row(code)["exit"].as_i64().expect("an exit"), "exit of {code}");
    }
}

fn check_envelope(line: &Value, is_last: bool) {
    let object = line.as_object().unwrap_or_else(|| panic!("not an envelope: {line}"));
    let keys: Vec<&str> = object.keys().map(String::as_str).collect();
    let ok = line["ok"].as_bool().expect("ok is a boolean");
    let body = if ok { "data" } else { "error" };
    let expected: &[&[&str]] = if is_last {
        &[&["ok", "schema_version", body, "meta"], &["ok", "schema_version", "type", body, "meta"]]
    } else {
        &[&["ok", "schema_version", "type", body]]
    };
    assert!(expected.contains(&keys.as_slice()), "keys {keys:?} (last line: {is_last}): {line}");
    assert_eq!(line["schema_version"], "1.0");
    if !ok {
        let error = line["error"].as_object().expect("error is an object");
        let names: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(names, ["code", "message", "details", "retryable"], "{line}");
        let row = table_row(error["code"].as_str().expect("a code"));
        assert_eq!(error["retryable"], row["retryable"], "{line}");
        assert!(error["details"].is_object(), "{line}");
    }
    if let Some(meta) = line.get("meta") {
        let meta = meta.as_object().expect("meta is an object");
        assert!(meta["duration_ms"].is_u64(), "{line}");
        assert!(meta.keys().all(|key| key == "duration_ms" || key == "notices"), "{line}");
    }
}

/// The row of a code in the checked-in contract.
pub fn table_row(code: &str) -> Value {
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(repository().join("common/contract").join(name)).expect("the contract file");
        serde_json::from_str(&text).expect("the contract file is JSON")
    };
    let mut row = read("contract.json")["error_codes"]["core"][code].clone();
    if row.is_null() {
        row = read("contract-ext.json")["error_codes"][code].clone();
    }
    assert!(row.is_object(), "the code {code} is in no contract file");
    row
}
