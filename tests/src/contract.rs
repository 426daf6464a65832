//! The contract on the wire, read from the checked-in files and not from the code.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use cp_testkit::{Outcome, repository};
use serde_json::Value;

static CONTRACT: LazyLock<Value> = LazyLock::new(|| file("contract.json"));
static CODES: LazyLock<Value> = LazyLock::new(|| {
    let mut rows = contract()["error_codes"]["core"].clone();
    let ours = file("contract-ext.json")["error_codes"].as_object().expect("rows of codes").clone();
    rows.as_object_mut().expect("rows of codes").extend(ours);
    rows
});

fn file(name: &str) -> Value {
    let text = std::fs::read_to_string(repository().join("common/contract").join(name)).expect("the contract file");
    serde_json::from_str(&text).expect("the contract file is JSON")
}

/// The contract, as it is published.
pub fn contract() -> &'static Value {
    &CONTRACT
}

/// The rows of all codes.
pub fn codes() -> &'static Value {
    &CODES
}

/// The texts of a list.
pub fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|word| word.as_str().expect("a text")).collect()
}

/// The names of the members of an object.
pub fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap_or_else(|| panic!("not an object: {object}")).keys().map(String::as_str).collect()
}

/// Checks that the output keeps the contract: every line an envelope with exact keys, `meta` on the last line and only
/// there, codes and exit as the table says.
#[track_caller]
pub fn check_contract(ran: &Outcome) {
    let lines = ran.records();
    for (left, line) in lines.iter().rev().enumerate() {
        check_envelope(line, left == 0);
    }
    let closing = ran.closing();
    if let Some(code) = closing["error"]["code"].as_str() {
        assert_eq!(codes()[code]["exit"], ran.status, "exit of {code}\n{ran:?}");
    }
}

#[track_caller]
fn check_envelope(line: &Value, is_last: bool) {
    let envelope = &contract()["envelope"];
    let set = |name: &str| words(&envelope[name]).into_iter().collect::<BTreeSet<_>>();
    let mut found = keys(line);
    let is_typed = found.remove("type");
    assert!(is_last || is_typed && found.insert("meta") && line.get("meta").is_none(), "{line}");
    assert_eq!(found, set(if line["ok"] == true { "success_keys" } else { "error_keys" }), "{line}");
    assert_eq!((line["ok"].is_boolean(), &line["schema_version"]), (true, &envelope["schema_version_value"]), "{line}");
    if let Some(error) = line.get("error") {
        assert_eq!(keys(error), set("error_object_keys"), "{line}");
        let row = &codes()[error["code"].as_str().expect("a code")];
        assert!(row.is_object() && error["retryable"] == row["retryable"] && error["details"].is_object(), "{line}");
    }
    if let Some(meta) = line.get("meta") {
        assert!(meta["duration_ms"].is_u64() && set("meta_required_keys").is_subset(&keys(meta)), "{line}");
        let allowed = &set("meta_required_keys") | &set("meta_optional_keys");
        assert!(keys(meta).is_subset(&allowed), "{line}");
    }
}
