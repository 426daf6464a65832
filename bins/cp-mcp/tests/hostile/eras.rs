//! Clients that do not know which version they speak.

use serde_json::{Value, json};

use super::{POLICY, Serve, greeting, request};

/// A request of the version without a handshake.
fn modern(id: Value, method: &str, mut params: Value, version: &str) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "hostile", "version": "6.6.6"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(id, method, params)
}

#[test]
fn requests_of_both_eras_on_one_connection_are_each_answered() {
    let mut serve = Serve::new(POLICY);
    let read = json!({"name": "cp_read", "arguments": {"path": "small"}});
    for round in 0..3 {
        serve.write(&modern(json!(1), "server/discover", json!({}), "2026-07-28"));
        let versions = &serve.answer_to(&json!(1))["result"]["supportedVersions"];
        assert!(versions.as_array().unwrap().contains(&json!("2026-07-28")), "{round}: {versions}");
        serve.write(&modern(json!(2), "tools/call", read.clone(), "2026-07-28"));
        let modern_result = serve.answer_to(&json!(2))["result"].clone();
        serve.write(&greeting(json!(3)));
        assert_eq!(serve.answer_to(&json!(3))["result"]["protocolVersion"], "2025-06-18", "{round}");
        serve.write(&request(json!(4), "tools/call", read.clone()));
        let result = serve.answer_to(&json!(4))["result"].clone();
        assert_eq!(result["structuredContent"]["output"], modern_result["structuredContent"]["output"], "{round}");
        assert_eq!((&result["resultType"], &modern_result["resultType"]), (&Value::Null, &json!("complete")));
    }
    serve.end();
}

#[test]
fn a_version_that_nobody_speaks_is_refused_in_one_era_and_bargained_about_in_the_other() {
    let mut serve = Serve::new(POLICY);
    for version in ["2027-01-01", "1999-01-01", "", "x"] {
        serve.write(&modern(json!(1), "tools/list", json!({}), version));
        let error = serve.answer_to(&json!(1))["error"].clone();
        assert_eq!(error["code"], -32022, "{version}: {error}");
        assert!(error["data"]["supported"].as_array().is_some_and(|all| all.contains(&json!("2026-07-28"))), "{error}");
        // One that only looks for the versions need not say what it can.
        let only_version = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
        serve.write(&request(json!(4), "tools/list", only_version.clone()));
        assert_eq!(serve.answer_to(&json!(4))["error"]["code"], -32602, "without capabilities");
        serve.write(&request(json!(3), "server/discover", only_version));
        assert!(serve.answer_to(&json!(3))["result"]["supportedVersions"].is_array());
        let mut hello = greeting(json!(2));
        hello["params"]["protocolVersion"] = version.into();
        serve.write(&hello);
        let offered = serve.answer_to(&json!(2))["result"]["protocolVersion"].clone();
        assert!(offered.as_str().is_some_and(|offered| offered.starts_with("202")), "{version}: {offered}");
    }
    serve.end();
}

#[test]
fn a_greeting_without_its_parts_is_refused_and_the_next_is_heard() {
    let mut serve = Serve::new(POLICY);
    for params in [json!({}), json!({"protocolVersion": 1}), json!({"protocolVersion": "2025-06-18", "clientInfo": 7})]
    {
        serve.write(&request(json!(1), "initialize", params.clone()));
        assert_eq!(serve.answer_to(&json!(1))["error"]["code"], -32602, "{params}");
    }
    serve.write(&greeting(json!(2)));
    assert_eq!(serve.answer_to(&json!(2))["result"]["serverInfo"]["name"], "cp-mcp");
    serve.end();
}
