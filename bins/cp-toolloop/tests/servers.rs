//! MCP servers that others wrote, really called; and what the policy says about servers.

use cp_testkit::{counterpart, packages, required};
use std::path::PathBuf;

use crate::toolloop::{Results, ToolLoop};
use serde_json::{Value, json};

/// The command line of a reference server.
fn reference(name: &str) -> Option<String> {
    let node = counterpart("node")?;
    let file = packages().join(format!("node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
    let server = required(&format!("the MCP server {name} (.ci/run installs it)"), file.is_file());
    server.then(|| format!("{} {}", node.display(), file.display()))
}

/// Makes the calls, one answer of the model each, and gives their results.
fn calls(place: &ToolLoop, server: &str, calls: &[(&str, Value)]) -> Vec<(String, bool)> {
    let lines: Vec<String> =
        calls.iter().map(|(name, input)| json!({"tool_calls": [{"name": name, "input": input}]}).to_string()).collect();
    place.script(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let ran = place.run(&["--mcp", server, "x"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let result = |data: &Value| (data["content"].as_str().unwrap().to_owned(), data["is_error"] == true);
    ran.of("tool_result").iter().map(result).collect()
}

#[test]
fn everything_server_is_called_in_sandbox() {
    let Some(command) = reference("everything") else { return };
    let place = ToolLoop::new();
    let text = "a \"b\" 'c' \\ \n\t{\"d\": [1]} ä 👍 $HOME `id`";
    let results = calls(
        &place,
        &format!("all={command}"),
        &[
            ("echo", json!({"message": text})),
            ("get-sum", json!({"a": 2, "b": 3})),
            ("get-sum", json!({"a": "2"})),
            ("trigger-long-running-operation", json!({"duration": 1, "steps": 3})),
            ("get-structured-content", json!({"location": "Chicago"})),
            ("get-tiny-image", json!({})),
            ("get-env", json!({})),
        ],
    );
    assert_eq!(results[0], (format!("Echo: {text}"), false));
    assert_eq!(results[1], ("The sum of 2 and 3 is 5.".to_owned(), false));
    assert!(results[2].1 && results[2].0.contains("do not fit its schema"), "{results:?}");
    assert!(!results[3].1 && results[3].0.contains("completed"), "{results:?}");
    assert!(!results[4].1 && results[4].0.contains("temperature"), "{results:?}");
    assert!(results[5].0.contains("[image, image/png]"), "{results:?}");
    let environment: Value = serde_json::from_str(&results[6].0).unwrap();
    assert!(environment.get("CP_HOME").is_none() && environment.get("PATH").is_some(), "{environment}");
    assert_ne!(environment["HOME"], json!(place.root.join("work")), "its home is a scratch directory");
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

#[test]
fn filesystem_server_writes_only_in_policy_paths() {
    let Some(command) = reference("filesystem") else { return };
    let place = ToolLoop::new();
    place.root.directory("aside");
    let (inside, aside) = (place.root.join("work/a.txt"), place.root.join("aside/a.txt"));
    // Its arguments allow it to write both; the sandbox does not.
    let server = format!("fs={command} {} {}", place.root.join("work").display(), place.root.join("aside").display());
    let write = |path: &PathBuf| json!({"path": path, "content": "two\nlines\n"});
    let wanted = [
        ("write_file", write(&inside)),
        ("read_text_file", json!({"path": inside})),
        ("write_file", write(&aside)),
        ("read_text_file", json!({"path": "/etc/passwd"})),
    ];
    // It says that writing destroys.
    place.policy("[mcp.fs]\napprove = false\n");
    let results = calls(&place, &server, &wanted);
    assert!(!results[0].1 && results[1] == ("two\nlines\n".to_owned(), false), "{results:?}");
    assert!(results[2].1 && !aside.exists(), "{results:?}");
    assert!(results[3].1, "{results:?}");
    place.policy(&format!("[mcp.fs]\napprove = false\nwrite = [\"{}\"]\n", place.root.join("aside").display()));
    let results = calls(&place, &server, &wanted);
    assert!(!results[2].1 && aside.exists(), "{results:?}");
}

#[test]
fn memory_server_gets_variable_of_policy() {
    let Some(command) = reference("memory") else { return };
    let place = ToolLoop::new();
    let server = format!("memory={command}");
    place.policy("[mcp.memory]\nenv = [\"MEMORY_FILE_PATH\"]\n");
    let entity = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["writes programs"]}]});
    let lines = [
        json!({"tool_calls": [{"name": "create_entities", "input": entity}]}).to_string(),
        json!({"tool_calls": [{"name": "read_graph", "input": {}}]}).to_string(),
    ];
    place.script(&[&lines[0], &lines[1]]);
    let file = place.root.join("work/memory.jsonl");
    let ran = place.command(&["--mcp", &server, "x"]).env("MEMORY_FILE_PATH", &file).run();
    assert!(ran.status == 0 && ran.results()[1].contains("writes programs"), "{ran:?}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("Ada"));
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
    assert_eq!(std::fs::read_dir(place.root.join("home/tmp")).unwrap().count(), 0, "nothing is left of their homes");
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
fn only_tools_of_policy_are_offered() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let server = format!("s={}", server(&place, "'ok'"));
    place.script(&[r#"{"tool_calls":[{"name":"look"}]}"#]);
    place.policy("[mcp.s]\ntools = [\"lo*\"]\n");
    assert_eq!(place.run(&["--mcp", &server, "x"]).results(), ["ok"]);
    place.policy("[mcp.s]\ntools = []\n");
    assert_eq!(place.run(&["--mcp", &server, "x"]).results(), ["Tool not permitted: look"]);
}

#[test]
fn invalid_policy_table_is_an_error_with_hint() {
    let place = ToolLoop::new();
    for (table, message, hint) in [
        ("netwrok = \"host\"", "unknown key `netwrok`", "network"),
        ("sandbox = \"no\"", "unknown variant", ""),
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
fn server_refused_by_sandbox_has_reason() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let server = server(&place, "'ok'");
    place.policy("[exec]\nrestricted_commands = [\"server\"]\n");
    let ran = place.run(&["tools", "--mcp", &format!("s={server}")]);
    let closing = ran.closing();
    let broken = closing["data"]["items"].as_array().unwrap().last().unwrap();
    assert_eq!(broken["status"], "broken", "{ran:?}");
    assert!(broken["why"].as_str().unwrap().contains("restricted"), "{broken}");
}
