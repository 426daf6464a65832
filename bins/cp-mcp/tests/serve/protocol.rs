//! What is offered: the tools that are named.

use serde_json::json;

use super::client::{command, place, with};
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
}
