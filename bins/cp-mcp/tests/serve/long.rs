//! Answers that are too long: their beginning, and the name of the whole.

use serde_json::json;

use super::client::{entries, place, start};
use crate::session::{ERAS, Era};

#[test]
fn a_long_output_is_a_beginning_and_names_the_whole() {
    for era in ERAS {
        let place = place();
        let mut client = start(&place, era, json!({}));
        let result = client.result("cp_run", json!({ "command": "seq 100000" }));
        let whole: String = (1..=100_000).map(|number| number.to_string() + "\n").collect();
        let shown = result["content"][0]["text"].as_str().unwrap();
        let (beginning, said) = shown.rsplit_once("\n[").unwrap();
        assert!(beginning.len() == 64 << 10 && whole.starts_with(beginning), "{said}");
        assert!(result["structuredContent"]["output"] == shown && result["structuredContent"]["bytes"] == whole.len());
        client.end();
        let kept = entries(&place, "mcp.result")[0]["data"]["output"].clone();
        assert_eq!(kept["len"], whole.len());
        let line = said.split_once(": ").unwrap().1.trim_end_matches(']');
        assert!(
            said.starts_with(&format!("the first 65536 of {} bytes", whole.len()))
                && line.contains("cp-log blob --ledger")
        );
        assert!(place.sh(&format!("{line} --format raw")).success().stdout == whole, "{line}");
        place.sh("cp-log verify $(find $CP_HOME -name '*.jsonl')").success();
    }
}

#[test]
fn data_that_is_too_long_is_a_text_too() {
    let place = place();
    let mut client = start(&place, Era::Modern, json!({}));
    for number in 0..60 {
        client.result("cp_read", json!({ "path": format!("{number}{}", "x".repeat(200)) }));
    }
    let result = client.result("cp_ledger_query", json!({ "limit": 1000 }));
    assert!(result["content"][0]["text"].as_str().unwrap().contains("cp-log blob --ledger"), "{result}");
    assert!(result["structuredContent"].get("items").is_none());
    assert_eq!(result["structuredContent"]["output"], result["content"][0]["text"]);
    client.end();
}
