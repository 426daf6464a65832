//! MCP servers that others wrote, really called; and what the policy says about servers.

use cp_testkit::{counterpart, packages, required};

use crate::toolloop::{Results, ToolLoop};
use serde_json::json;

/// The command line of a reference server.
fn reference(name: &str) -> Option<String> {
    let node = counterpart("node")?;
    let file = packages().join(format!("node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
    let server = required(&format!("the MCP server {name} (.ci/run installs it)"), file.is_file());
    server.then(|| format!("{} {}", node.display(), file.display()))
}

#[test]
fn image_of_tool_reaches_model() {
    let Some(command) = reference("everything") else { return };
    let place = ToolLoop::new();
    place.script(&[r#"{"tool_calls":[{"name":"get-tiny-image"}]}"#, r#"{"content":"seen"}"#]);
    let server = format!("all={command}");
    let ran = place.run(&["--mcp", &server, "--record", "r.jsonl", "x"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let result = &ran.of("tool_result")[0];
    assert_eq!((&result["images"][0]["type"], &result["_untrusted"][2]), (&json!("image"), &json!("/images")));
    let answered = &ran.of("message")[1]["input"][0]["content"][0];
    assert_eq!(answered["type"], "tool_result", "{ran:?}");
    let source = &answered["content"][1]["source"];
    assert_eq!((&source["type"], &source["media_type"]), (&json!("base64"), &json!("image/png")), "{ran:?}");
    assert!(source["data"].as_str().unwrap().starts_with("iVBORw0KGgo"), "{ran:?}");
    assert_eq!(place.run(&["--replay", "r.jsonl"]).of("tool_result"), ran.of("tool_result"));
}

/// A server that answers a call with what `answer` evaluates to.
fn server(place: &ToolLoop, answer: &str) -> String {
    let text = r#"#!/usr/bin/python3
import json, os, socket, sys
def tried(what):
    try: return str(what())
    except Exception as e: return type(e).__name__
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "server/discover": result = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    elif m["method"] == "tools/list": result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    else: result = {"content": [{"type": "text", "text": ANSWER}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"#;
    place.root.executable("server", text.replace("ANSWER", answer));
    place.root.join("server").display().to_string()
}

#[test]
fn server_has_no_home_network_or_variables() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let home = place.root.join("home").display().to_string();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = format!(
        r#"" ".join([tried(lambda: len(os.listdir("{home}/keys"))), tried(lambda: socket.create_connection(("127.0.0.1", {port})).close()), tried(lambda: os.environ["MINE"]), tried(lambda: os.environ["OTHER"])])"#
    );
    let server = server(&place, &answer);
    place.script(&[r#"{"tool_calls":[{"name":"look"}]}"#]);
    let look = || {
        let command = place.command(&["--mcp", &format!("s={server}"), "x"]);
        let ran = command.env("MINE", "given").env("OTHER", "kept").run();
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.results()[0].clone()
    };
    let inside = look();
    let seen: Vec<&str> = inside.split(' ').collect();
    assert!(["0", "PermissionError", "FileNotFoundError"].contains(&seen[0]), "{inside}");
    assert!(seen[1] != "None" && seen[2..] == ["KeyError", "KeyError"], "{inside}");
    place.policy("[mcp.s]\nenv = [\"MINE\"]\n");
    assert_eq!(look().split(' ').skip(2).collect::<Vec<_>>(), ["given", "KeyError"]);
    // Outside it sees all that: it was there to be seen.
    place.policy("[mcp.s]\nsandbox = \"none\"\nenv = [\"MINE\"]\n");
    let outside = look();
    assert_eq!(outside, "1 None given KeyError");
    assert_eq!(
        std::fs::read_dir(place.root.join("home/tmp/mcp")).unwrap().count(),
        0,
        "nothing is left of their homes"
    );
}

#[test]
fn server_with_network_of_names_reaches_these_names_only() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(drop));
    let answer = format!(
        r#"" ".join(tried(lambda: socket.create_connection(place, 5).recv(1)) for place in [("api.test", 443), ("other.test", 443), ("127.0.0.1", {port})])"#
    );
    let server = server(&place, &answer);
    let look = |network: &str| {
        place.script(&[r#"{"tool_calls":[{"name":"look"}]}"#]);
        place.policy(&format!("[mcp.s]\nnetwork = {network}\n"));
        let ran = place.run(&["--mcp", &format!("s={server}"), "x"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.results()[0].clone()
    };
    let listed = look(&format!("[\"api.test=127.0.0.1:{port}\"]"));
    assert_eq!(listed, "b'' gaierror ConnectionRefusedError");
    let without = look("[]");
    assert!(without.starts_with("gaierror gaierror ") && !without.contains("b''"), "{without}");
}

#[test]
fn server_command_comes_from_policy() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let server = server(&place, "'ok'");
    place.policy(&format!("[mcp.s]\ncommand = \"{server}\"\n"));
    let listed = place.run(&["tools", "--mcp", "s", "--allow", "look", "--fields", "name,origin"]);
    let origin = json!({"kind": "mcp", "server": "s", "tool": "look"});
    assert_eq!(listed.closing()["data"]["items"][0], json!({"name": "look", "origin": origin}), "{listed:?}");
    let same = place.run(&["tools", "--mcp", "s=../work/../server", "--allow", "look"]);
    assert_eq!(same.status, 4, "a path that only leads to it is another: {same:?}");
    place.policy("[mcp.s]\ncommand = \"../server\"\n");
    let same = place.run(&["tools", "--mcp", "s=../server", "--allow", "look"]);
    assert_eq!(same.closing()["data"]["items"][0]["name"], "look", "{same:?}");
    let other = place.run(&["tools", "--mcp", "s=/bin/cat"]);
    assert_eq!((other.status, &other.error()["code"]), (4, &json!("E_FORBIDDEN")), "{other:?}");
    assert_eq!(place.run(&["tools", "--mcp", "unknown"]).status, 2);
}

#[test]
fn invalid_policy_table_is_an_error_with_hint() {
    let place = ToolLoop::new();
    for (table, message, hint) in [
        ("netwrok = \"host\"", "unknown key `netwrok`", "network"),
        ("sandbox = \"no\"", "unknown value `no`", "none"),
        ("env = [\"ANTHROPIC_API_KEY\"]", "ANTHROPIC_API_KEY", "another name"),
    ] {
        place.policy(&format!("[mcp.s]\n{table}\n"));
        let ran = place.run(&["tools", "--mcp", "s=/bin/cat"]);
        assert_eq!((ran.status, &ran.error()["code"]), (4, &json!("E_CONFIG")), "{table}: {ran:?}");
        assert!(ran.error()["message"].as_str().unwrap().contains(message), "{ran:?}");
        assert!(ran.detail("hint").contains(hint), "{ran:?}");
    }
}

#[test]
fn policy_writable_by_others_is_refused() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let server = server(&place, "'ok'");
    place.policy("[mcp.s]\nsandbox = \"none\"\n");
    let argument = format!("s={server}");
    let listed = || place.run(&["tools", "--mcp", &argument, "--allow", "look"]);
    assert_eq!(listed().closing()["data"]["items"][0]["name"], "look");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o646);
    std::fs::set_permissions(place.root.join("home/config/policy.toml"), open).unwrap();
    let ran = listed();
    assert_eq!((ran.status, &ran.error()["code"]), (4, &json!("E_CONFIG")), "{ran:?}");
    assert!(ran.detail("hint").starts_with("chmod go-w"), "{ran:?}");
}

#[test]
fn address_in_place_of_command_gets_the_command_that_connects() {
    let place = ToolLoop::new();
    for (command, hint) in [
        ("http://127.0.0.1:1/mcp", "cp-mcp connect"),
        ("https://a.test/mcp", "cp-mcp connect"),
        ("./none", "an executable file"),
    ] {
        let error = place.run(&["--mcp", &format!("s={command}"), "x"]).error();
        assert_eq!(error["code"], "E_NOT_FOUND", "{command}: {error}");
        assert!(error["details"]["hint"].as_str().unwrap().contains(hint), "{command}: {error}");
    }
}
