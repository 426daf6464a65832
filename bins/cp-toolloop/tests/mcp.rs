//! What the loop does with MCP servers: time limits, calls at the same time, approval, the record, the files of other
//! hosts, and servers that fail.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::toolloop::{Results, ToolLoop};

/// A server with these tools, one a line of JSON; `calls` is the body of a function of the tool's name and its
/// arguments.
pub(crate) fn server(place: &ToolLoop, tools: &Value, calls: &str) -> String {
    let text = format!(
        r#"#!/usr/bin/python3
import json, os, sys, threading, time
def say(x): sys.stdout.write(json.dumps(x) + "\n"); sys.stdout.flush()
def call(name, arguments):
{calls}
def answer(id, params):
    say({{"jsonrpc": "2.0", "id": id, "result": {{"content": [{{"type": "text", "text": str(call(params["name"], params["arguments"]))}}]}}}})
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "tools/call":
        threading.Thread(target=answer, args=(m["id"], m["params"])).start()
        continue
    if m["method"] == "server/discover": result = {{"supportedVersions": ["2026-07-28"], "capabilities": {{}}, "serverInfo": {{"name": "scripted", "version": "3"}}, "instructions": "Look first.\nThen leap."}}
    else: result = {{"tools": json.loads({tools:?})}}
    say({{"jsonrpc": "2.0", "id": m["id"], "result": result}})
"#,
        tools = tools.to_string()
    );
    place.root.executable("server", text);
    place.root.join("server").display().to_string()
}

/// A tool of that name, with these annotations.
pub(crate) fn tool(name: &str, annotations: &Value) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations})
}

/// An answer of the model with these calls.
fn calling(calls: &[(&str, Value)]) -> String {
    let calls: Vec<Value> = calls.iter().map(|(name, input)| json!({"name": name, "input": input})).collect();
    json!({ "tool_calls": calls }).to_string()
}

#[test]
fn call_ends_at_server_limit_and_at_deadline() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let server = server(&place, &json!([tool("wait", &json!({}))]), "    time.sleep(30)");
    place.script(&[&calling(&[("wait", json!({}))])]);
    place.policy("[mcp.s]\ntimeout = 0.5\n");
    let ran = place.run(&["--mcp", &format!("s={server}"), "x"]);
    let late = "E_TIMEOUT: the server s did not answer within 0.5 s (timeout in [mcp.s]";
    assert!(ran.status == 0 && ran.results()[0].starts_with(late), "{ran:?}");
    place.policy("");
    let began = Instant::now();
    let ran = place.run(&["--mcp", &format!("s={server}"), "--deadline", "5", "x"]);
    assert_eq!(ran.error()["code"], "E_BUDGET_EXHAUSTED", "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    place.policy("[mcp.s]\ntimeout = 86401\n");
    assert_eq!(place.run(&["tools", "--mcp", &format!("s={server}")]).error()["code"], "E_CONFIG");
}

#[test]
fn destructive_tool_requires_approval() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let tools = json!([
        tool("drop", &json!({"destructiveHint": true})),
        tool("look", &json!({"destructiveHint": true, "readOnlyHint": true})),
        tool("silent", &json!(null))
    ]);
    let server = format!("s={}", server(&place, &tools, "    return name"));
    place.script(&[&calling(&[("look", json!({})), ("silent", json!({})), ("drop", json!({}))])]);
    let run = || place.run(&["--mcp", &server, "x"]);
    let asked = run();
    assert_eq!((asked.status, &asked.error()["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{asked:?}");
    assert_eq!(asked.results(), ["look", "silent"], "{asked:?}");
    let run_id = asked.detail("run_id");
    let denied = place.run(&["resume", &run_id, "--deny", "call_1_3", "--message", "no"]);
    assert_eq!(denied.results(), ["Denied: no"], "{denied:?}");
    let run_id = run().detail("run_id");
    let resumed = place.run(&["resume", &run_id, "--approve", "call_1_3"]);
    assert_eq!((resumed.status, resumed.results()), (0, vec!["drop".to_owned()]), "{resumed:?}");
    let steps = place.run(&["show", &run_id]).data()["steps"].as_array().unwrap().clone();
    let of = |event: &str| steps.iter().filter(|step| step["event"] == event).cloned().collect::<Vec<_>>();
    let calls: Vec<Value> = of("mcp.call").iter().map(|call| call["data"]["call_id"].clone()).collect();
    assert_eq!(calls, ["call_1_1", "call_1_2", "call_1_3"], "{steps:?}");
    assert_eq!((of("mcp.result").len(), of("approval.spent").len()), (3, 1), "{steps:?}");
    place.policy("[mcp.s]\napprove = false\n");
    assert_eq!(run().results(), ["look", "silent", "drop"]);
    place.policy("[mcp.s]\napprove = true\n");
    assert_eq!(run().status, 9);
}

#[test]
fn ledger_has_server_before_its_first_call() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let server = server(&place, &json!([tool("look", &json!({}))]), "    return os.environ.get('MODE')");
    place.script(&[&calling(&[("look", json!({}))]), &calling(&[("look", json!({"n": 1}))])]);
    for sandbox in ["tool", "none"] {
        place.policy(&format!("[mcp.s]\nsandbox = \"{sandbox}\"\nenv = [\"MODE\"]\n"));
        let ran = place.command(&["--mcp", &format!("s={server} --all"), "x"]).env("MODE", "value-of-mode").run();
        assert_eq!(ran.results(), ["value-of-mode"; 2], "{ran:?}");
        let shown = place.run(&["show", ran.closing()["data"]["run_id"].as_str().unwrap()]);
        let steps = shown.data()["steps"].as_array().unwrap().clone();
        let events: Vec<&str> = steps.iter().filter_map(|step| step["event"].as_str()).collect();
        let at = |name| events.iter().position(|event| *event == name).unwrap();
        assert!(at("mcp.server") < at("tool_result"), "{events:?}");
        assert_eq!(events.iter().filter(|event| **event == "mcp.server").count(), 1, "{events:?}");
        let noted = &steps[at("mcp.server")]["data"]["server"];
        assert_eq!(noted["command"], json!([server, "--all"]));
        let said = ["name", "sandbox", "server_name", "server_version", "protocol"].map(|name| &noted[name]);
        assert_eq!(said, ["s", sandbox, "scripted", "3", "2026-07-28"]);
        assert!(noted["env"] == json!(["MODE"]) && !noted.to_string().contains("value-of-mode"), "{noted}");
    }
}

#[test]
fn server_that_does_not_start_fails_run_with_reason() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    place.root.executable("server", "#!/usr/bin/python3\ndef begin():\n    import nothing_of_this_name\nbegin()\n");
    let server = format!("s={}", place.root.join("server").display());
    let ran = place.run(&["--mcp", &server, "x"]);
    assert_eq!((ran.status, &ran.error()["code"]), (7, &json!("E_SERVER")), "{ran:?}");
    assert!(ran.error()["message"].as_str().unwrap().contains("No module named 'nothing_of_this_name'"), "{ran:?}");
    assert!(ran.of("message").is_empty(), "the model was not asked");
    let listed = place.run(&["tools", "--mcp", &server, "--allow", "system"]);
    assert_eq!((listed.status, &listed.error()["code"]), (7, &json!("E_SERVER")), "{listed:?}");
}

#[test]
fn unknown_allowed_name_is_an_error_with_suggestion() {
    let place = ToolLoop::new();
    for arguments in [&["--allow", "filesytem", "x"][..], &["tools", "--allow", "filesytem"]] {
        let ran = place.run(arguments);
        assert_eq!((ran.status, &ran.error()["code"]), (3, &json!("E_NOT_FOUND")), "{ran:?}");
        assert_eq!(ran.detail("hint"), "did you mean `filesystem`?");
    }
    assert_eq!(place.run(&["tools", "--allow", "filesystem"]).data()["count"], 1);
}

#[test]
fn dotted_names_and_lookaround_patterns_are_accepted() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?!x)", "minLength": 2}}});
    let tools =
        json!([{"name": "files.read.all", "description": null, "inputSchema": schema}, {"name": "files_read_all"}]);
    let server = format!("s={}", server(&place, &tools, "    return name"));
    let items = place.run(&["tools", "--mcp", &server]).data()["items"].clone();
    let changed = items.as_array().unwrap().iter().find(|item| item["origin"]["tool"] == "files.read.all");
    let changed = changed.unwrap()["name"].as_str().unwrap();
    assert!(changed.starts_with("files_read_all_"), "the other has that name as its own: {changed}");
    let calls = [(changed, json!({"a": "yy"})), (changed, json!({"a": "y"})), ("files_read_all", json!({}))];
    place.script(&[&calling(&calls)]);
    let ran = place.run(&["--mcp", &server, "x"]);
    let results = ran.results();
    assert_eq!((results[0].as_str(), results[2].as_str()), ("files.read.all", "files_read_all"), "{ran:?}");
    assert!(results[1].contains("do not fit its schema"), "{ran:?}");
    assert_eq!(ran.stderr.matches("^(?!x)").count(), 1, "one warning: {ran:?}");
    let one = place.run(&["--mcp", &server, "--allow", "files.read.all", "x"]);
    assert_eq!(one.results()[2], "Tool not permitted: files_read_all", "{one:?}");
}

#[test]
fn undo_names_calls_of_servers_that_may_write() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    place.policy("[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
    let tools =
        json!([tool("look", &json!({"readOnlyHint": true})), tool("write", &json!({"destructiveHint": false}))]);
    let calls = "    if name == 'write': open('made', 'w').write('x')\n    return name";
    let server = format!("s={}", server(&place, &tools, calls));
    place.script(&[&calling(&[("look", json!({})), ("write", json!({}))]), r#"{"content":"Done."}"#]);
    let ran = place.run(&["--mcp", &server, "x"]).success();
    assert_eq!((ran.results(), place.written("made").as_str()), (vec!["look".to_owned(), "write".to_owned()], "x"));
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    let undone = place.run(&["undo", &run]).success().closing();
    let called = json!([{"call": "call_1_2", "command": "write"}]);
    assert_eq!(undone["data"]["effects"], called, "{undone}");
}
