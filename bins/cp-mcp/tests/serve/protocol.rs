//! The protocol itself: greetings, lists, and what is answered to what is not understood.

use serde_json::json;

use super::client::{Client, ERAS, Era, place};

#[test]
fn both_eras_are_greeted_and_list_the_same() {
    let place = place();
    let mut lists = Vec::new();
    for era in ERAS {
        let mut client = Client::start(&place, era, json!({}));
        let tools = client.request("tools/list", json!({}))["result"].clone();
        assert_eq!(tools["resultType"].as_str(), (era == Era::Modern).then_some("complete"), "{era:?}");
        assert_eq!(tools["ttlMs"].is_u64(), era == Era::Modern);
        lists.push(tools["tools"].clone());
        assert_eq!(client.request("resources/list", json!({}))["result"]["resources"], json!([]));
        let pong = client.request("ping", json!({}))["result"].clone();
        assert_eq!(pong.get("resultType").is_some(), era == Era::Modern);
        client.leave();
    }
    assert_eq!(lists[0], lists[1]);
    assert_eq!(lists[0].as_array().unwrap().len(), 9);
}

#[test]
fn only_the_tools_that_are_named_are_there() {
    let place = place();
    let mut client = Client::with(&place, Era::Modern, json!({}), &["--only", "cp_read,cp_check"]);
    let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cp_check", "cp_read"]);
    let refused = client.request("tools/call", json!({ "name": "cp_run", "arguments": { "command": "echo x" } }));
    assert_eq!(refused["error"]["code"], -32602);
    client.leave();
    let error = place.run(&["serve", "--only", "cp_rum"]).failed(2, "E_USAGE");
    assert_eq!(error["details"]["hint"], "did you mean `cp_run`?");
    place.run(&["serve", "--cwd", "none"]).failed(3, "E_NOT_FOUND");
}
