//! What is offered: the tools that are named, and the prompts of a home.

use serde_json::json;

use super::client::{command, place, start, with};
use crate::session::Era;

#[test]
fn only_the_tools_that_are_named_are_there() {
    let place = place();
    let mut client = with(&place, Era::Modern, &["--only", "cp_read,cp_check"]);
    let tools = client.ask("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cp_check", "cp_read"]);
    let refused = client.ask("tools/call", command("echo x"));
    assert_eq!(refused["error"]["code"], -32602);
    client.end();
    let error = place.run(&["serve", "--only", "cp_rum"]).failed(2, "E_USAGE");
    assert_eq!(error["details"]["hint"], "did you mean `cp_run`?");
    place.run(&["serve", "--cwd", "none"]).failed(3, "E_NOT_FOUND");
}

#[test]
fn agents_and_registered_prompts_are_prompts() {
    let place = place();
    place.sh("cp-shell init >/dev/null").success();
    place.home.write("agents/writer/soul.md", "You write.\n");
    place.home.write("config/agents.json", "{\"writer\":{}}");
    place.home.write("governed_prompts/PRM-TEST-001.md", "Speak {tone}.");
    place.sh("cp-shell register PRM-TEST-001 --confirm $(cp-shell register PRM-TEST-001 --dry-run | jq -r .data.confirm_token)").success();
    let mut client = start(&place, Era::Modern, json!({}));
    let prompts = client.ask("prompts/list", json!({}))["result"]["prompts"].clone();
    assert_eq!(prompts[0]["name"], "agent-writer");
    let registered = prompts.as_array().unwrap().iter().find(|prompt| prompt["name"] == "PRM-TEST-001").unwrap();
    assert_eq!(registered["arguments"], json!([{ "name": "tone", "required": true }]));
    let soul = client.ask("prompts/get", json!({ "name": "agent-writer" }))["result"].clone();
    assert_eq!(soul["messages"][0]["content"]["text"], "You write.");
    let asked = json!({ "name": "PRM-TEST-001", "arguments": { "tone": "softly" } });
    let filled = client.ask("prompts/get", asked)["result"].clone();
    assert!(filled["messages"][0]["content"]["text"].as_str().unwrap().starts_with("Speak softly."), "{filled}");
    let refused = client.ask("prompts/get", json!({ "name": "PRM-TEST-001" }))["error"].clone();
    assert!(refused["code"] == -32602 && refused["message"].as_str().unwrap().contains("tone"), "{refused}");
    client.end();
}
