//! Answers that are too long for one line: their beginning, and the whole as a resource.

use serde_json::json;

use super::client::{entries, place, start};
use crate::session::{ERAS, Era};

#[test]
fn a_long_output_is_a_beginning_and_a_link_to_the_whole() {
    for era in ERAS {
        let place = place();
        let mut client = start(&place, era, json!({}));
        let result = client.result("cp_run", json!({ "command": "seq 100000" }));
        let whole: String = (1..=100_000).map(|number| number.to_string() + "\n").collect();
        let shown = result["content"][0]["text"].as_str().unwrap();
        assert!(shown.len() <= 64 << 10 && whole.starts_with(shown) && result["structuredContent"]["output"] == shown);
        let link = &result["content"][1];
        assert_eq!((&link["type"], &link["size"]), (&json!("resource_link"), &json!(whole.len())));
        let read = client.ask("resources/read", json!({ "uri": link["uri"] }))["result"].clone();
        assert_eq!(read["ttlMs"].is_u64(), era == Era::Modern);
        assert!(read["contents"][0]["text"] == whole, "{} bytes", whole.len());
        for (era, code) in [(Era::Handshake, -32002), (Era::Modern, -32602)].into_iter().filter(|(of, _)| *of == era) {
            let none = format!("cp-blob:sha256:{}", "0".repeat(64));
            let refused = client.ask("resources/read", json!({ "uri": none }));
            assert_eq!(refused["error"]["code"], code, "{era:?}: {refused}");
        }
        client.end();
        let kept = entries(&place, "mcp.result")[0]["data"]["output"].clone();
        assert_eq!(kept["len"], whole.len());
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
    assert_eq!(result["content"][1]["type"], "resource_link", "{result}");
    assert!(result["structuredContent"].get("items").is_none());
    assert_eq!(result["structuredContent"]["output"], result["content"][0]["text"]);
    client.end();
}
