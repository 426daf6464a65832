//! A project that a model works on: from the policy that is written for it to a test that passes; and a run that may
//! only look.

use cp_testkit::pytest_environment;
use serde_json::json;

use crate::toolloop::{Results, ToolLoop};

/// The call that mends the project.
const FIX: &str =
    r#"{"name":"filesystem","input":{"operation":"write_file","path":"rates.py","content":"RATE = 2\n"}}"#;

#[test]
fn failing_test_is_fixed_under_project_policy() {
    let Some(environment) = pytest_environment() else { return };
    let place = ToolLoop::new();
    place.work.write("prices.py", "from rates import RATE\n\ndef price(n):\n    return n * RATE\n");
    place.work.write("test_prices.py", "from prices import price\n\ndef test_price():\n    assert price(21) == 42\n");
    let call = |name: &str, input: &str| format!(r#"{{"tool_calls":[{{"name":"{name}","input":{input}}}]}}"#);
    let script = [
        call("shell", r#"{"command":"pytest -q"}"#),
        call("filesystem", r#"{"operation":"read_file","path":"test_prices.py"}"#),
        call("filesystem", r#"{"operation":"read_file","path":"prices.py"}"#),
        format!(r#"{{"tool_calls":[{FIX}]}}"#),
        call("shell", r#"{"command":"pytest -q"}"#),
        call("shell", r#"{"command":"git status --short"}"#),
        r#"{"content":"rates.py was missing; the test passes now."}"#.to_owned(),
    ];
    place.work.write(".git/info/exclude", "*.jsonl\n__pycache__\n.pytest_cache\n");
    place.work.write("fix.jsonl", script.join("\n"));
    let line = "git init -q . && cp-exec policy init --for . >/dev/null && \
                cp-toolloop --format FORMAT --backend stub --stub-script fix.jsonl 'Fix the failing test'";
    let ran = |format: &str| place.shell("sh", &line.replace("FORMAT", format)).env("VIRTUAL_ENV", &environment).run();
    let worked = ran("json").success();
    let results = worked.results();
    assert!(results[0].contains("No module named 'rates'") && results[4].contains("1 passed"), "{results:#?}");
    assert!(results[1].contains("price(21)") && results[5].contains("?? rates.py"), "{results:#?}");
    assert_eq!(place.written("rates.py"), "RATE = 2\n");
    std::fs::remove_file(place.work.join("rates.py")).unwrap();
    assert_eq!(ran("text").success().stdout, "rates.py was missing; the test passes now.\n");
}

#[test]
fn descriptions_name_allowed_commands_and_directories() {
    let place = ToolLoop::new();
    let described = |name: &str| {
        let listed = place.run(&["tools", "--allow", name]).closing();
        listed["data"]["items"][0]["description"].as_str().unwrap().to_owned()
    };
    assert!(described("shell").contains("The policy allows no command."));
    place.policy("[exec]\nallowed_commands = [\"git\", \"rm\", \"make\"]\nrestricted_commands = [\"rm\"]\n[paths]\nwrite = [\".\", \"/data\"]\n");
    let shell = described("shell");
    assert!(shell.contains("Allowed: git, make;") && shell.contains("below the working directory, /data."), "{shell}");
    assert!(described("filesystem").contains("below the working directory, /data."));
}

const SERVER: &str = r#"#!/usr/bin/python3
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    answer = {"jsonrpc": "2.0", "id": m["id"]}
    tool = lambda name, **more: {"name": name, "inputSchema": {"type": "object"}, **more}
    if m["method"] == "initialize": answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif m["method"] == "tools/list": answer["result"] = {"tools": [tool("look", annotations={"readOnlyHint": True}), tool("change", annotations={"readOnlyHint": False}), tool("unsaid")]}
    else: answer["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn read_only_run_offers_no_writes() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    place.tool("reads", r#","read_only":true"#, "echo x >by_tool 2>/dev/null && echo wrote || echo not");
    place.tool("writes", "", "echo x >by_tool && echo wrote");
    let server = format!("s={}", place.root.executable("server", SERVER).display());
    place.policy("[exec]\nallowed_commands = [\"touch\", \"sh\"]\n");
    let names = |options: &[&str]| {
        let listed = place.with_tools(&[&["tools", "--mcp", &server], options].concat()).closing();
        let items = listed["data"]["items"].as_array().unwrap().iter();
        items.filter_map(|item| item["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let all = ["change", "look", "reads", "unsaid", "writes", "filesystem", "system", "shell", "bash"];
    assert_eq!(names(&[]), all, "the control");
    assert_eq!(names(&["--read-only"]), ["look", "reads", "filesystem", "system", "shell", "bash"]);

    let calls = json!({"tool_calls": [
        {"name": "shell", "input": {"command": "touch by_command"}},
        {"name": "filesystem", "input": {"operation": "write_file", "path": "by_file", "content": "x"}},
        {"name": "reads"},
        {"name": "writes"},
    ]});
    let done = json!({"content": "done"});
    place.script(&[&calls.to_string(), &done.to_string()]);
    let ran = place.with_tools(&["--read-only", "x"]);
    let results = ran.results();
    assert!(results[0].contains("Read-only file system"), "{ran:?}");
    assert!(results[1].contains("do not fit its schema"), "{ran:?}");
    assert_eq!((results[2].trim(), results[3].as_str()), ("not", "Tool not permitted: writes"), "{ran:?}");
    let made = ["by_command", "by_file", "by_tool"];
    assert_eq!(made.map(|name| place.work.join(name).exists()), [false; 3], "{ran:?}");

    place.script(&[&calls.to_string(), &done.to_string()]);
    let control = place.with_tools(&["x"]);
    assert_eq!(made.map(|name| place.work.join(name).exists()), [true; 3], "the control: {control:?}");
}

#[test]
fn read_only_run_stays_read_only_after_resume() {
    let place = ToolLoop::new();
    place.policy("[exec]\nallowed_commands = [\"touch\"]\n");
    let touch = json!({"tool_calls": [{"name": "shell", "input": {"command": "touch made"}}]}).to_string();
    place.script(&[&touch, &touch]);
    let stopped = place.run(&["--read-only", "--max-iterations", "1", "x"]);
    let resumed = place.run(&crate::toolloop::words_of(&stopped.detail("resume")));
    assert!(resumed.results()[0].contains("Read-only file system"), "{resumed:?}");
    assert!(!place.work.join("made").exists());
    place.script(&[&touch]);
    place.run(&["x"]);
    assert!(place.work.join("made").exists(), "the control");
}
