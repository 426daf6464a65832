//! Servers that others wrote behind `cp-mcp proxy`, and our own bridge as a server of cp-toolloop.

use cp_testkit::{Place, counterpart, packages, required};
use serde_json::{Value, json};

use crate::proxy::{lists, server, tool};
use crate::session::{Session, entries};

/// The command of a reference server.
fn reference(name: &str) -> Option<[String; 2]> {
    let node = counterpart("node")?;
    let file = packages().join(format!("node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
    let is_there = required(&format!("the MCP server {name} (.ci/run installs it)"), file.is_file());
    is_there.then(|| [node.display().to_string(), file.display().to_string()])
}

#[track_caller]
fn opened(place: &Place, name: &str, command: &[String], more: &[&str]) -> Session {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    Session::open(place, &[&["proxy", "--server", name, "--"][..], &command, more].concat())
}

#[test]
fn everything_server_is_called_through_gate() {
    let Some(command) = reference("everything") else { return };
    let place = Place::of("cp-mcp");
    let mut session = opened(&place, "all", &command, &[]);
    assert!(session.tools().contains(&"get-sum".to_owned()));
    let text = "a \"b\" 'c' \\ \n\t{\"d\": [1]} ä 👍 $HOME `id`";
    assert_eq!(session.call("echo", json!({"message": text})), (format!("Echo: {text}"), false));
    assert_eq!(session.call("get-sum", json!({"a": 2, "b": 3})).0, "The sum of 2 and 3 is 5.");
    assert!(session.call("get-sum", json!({"a": "2"})).1, "the server checks the arguments");
    let id = session.send(
        "tools/call",
        json!({"name": "trigger-long-running-operation", "arguments": {"duration": 1, "steps": 3}, "_meta": {"progressToken": "p"}}),
    );
    assert!(session.answer(id)["result"]["content"][0]["text"].as_str().unwrap().contains("completed"));
    assert!(session.others.iter().any(|line| line["params"]["progressToken"] == "p"), "{:?}", session.others);
    let image = session.ask("tools/call", json!({"name": "get-tiny-image"}));
    assert!(image.to_string().contains("iVBORw0KGgo"), "{image}");
    let structured =
        session.ask("tools/call", json!({"name": "get-structured-content", "arguments": {"location": "Chicago"}}));
    assert!(structured["result"]["structuredContent"]["temperature"].is_number(), "{structured}");
    let environment: Value = serde_json::from_str(&session.call("get-env", json!({})).0).unwrap();
    assert!(environment.get("CP_HOME").is_none() && environment.get("PATH").is_some(), "{environment}");
    assert!(session.ask("resources/list", json!({}))["result"]["resources"].is_array());
    assert!(session.ask("prompts/list", json!({}))["result"]["prompts"].is_array());
    assert_eq!(session.leave().status, 0);
    assert_eq!(
        opened(&place, "all", &command, &[]).tools().len(),
        entries(&place, "mcp.pinned")[0]["data"]["tools"].as_object().unwrap().len()
    );
}

#[test]
fn filesystem_server_writes_only_in_policy_paths() {
    let Some(command) = reference("filesystem") else { return };
    let place = Place::of("cp-mcp");
    place.root.directory("aside");
    let [work, aside] = ["work", "aside"].map(|name| place.root.join(name).display().to_string());
    place.policy("[mcp.fs]\napprove = false\n");
    let mut session = opened(&place, "fs", &command, &[&work, &aside]);
    let write = |directory: &str| json!({"path": format!("{directory}/a.txt"), "content": "two\nlines\n"});
    assert!(!session.call("write_file", write(&work)).1);
    assert_eq!(session.call("read_text_file", json!({"path": format!("{work}/a.txt")})).0, "two\nlines\n");
    assert!(session.call("write_file", write(&aside)).1);
    session.leave();
    place.policy(&format!("[mcp.fs]\napprove = false\nwrite = [\"{aside}\"]\n"));
    assert!(!opened(&place, "fs", &command, &[&work, &aside]).call("write_file", write(&aside)).1);
}

#[test]
fn memory_server_gets_variable_of_policy() {
    let Some(command) = reference("memory") else { return };
    let place = Place::of("cp-mcp");
    // The command of the policy, without one on the command line.
    place.policy(&format!("[mcp.memory]\ncommand = \"{} {}\"\n", command[0], command[1]));
    let mut session = Session::open(&place, &["proxy", "--server", "memory"]);
    assert!(session.tools().contains(&"read_graph".to_owned()));
    assert!(session.call("read_graph", json!({})).0.contains("entities"));
}

#[test]
fn cp_mcp_is_a_server_of_a_run() {
    cp_testkit::needs!("python3");
    let place = Place::of("cp-toolloop");
    let server = server(&place, "    return name + str((arguments or {}).get('n'))");
    lists(&place, &json!([tool("look"), tool("drop")]));
    place.policy("[mcp.r]\ntools = [\"look\"]\napprove = false\n");
    let calls = |name: &str| json!({"tool_calls": [{"name": name, "input": {"n": 4}}]}).to_string();
    place.root.write("script", [calls("look"), calls("drop"), json!({"content": "done"}).to_string()].join("\n"));
    let script = place.root.join("script");
    let bridge = format!("r=cp-mcp proxy --server r -- {server}");
    let run = |arguments: &[&str]| {
        place.subject().args(arguments).env("CP_BACKEND", "stub").env("CP_STUB_SCRIPT", &script).run()
    };
    let ran = run(&["--mcp", &bridge, "x"]);
    let results: Vec<String> =
        ran.of("tool_result").iter().map(|data| data["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(results, ["look4", "Tool not permitted: drop"], "{ran:?}");
    assert_eq!((entries(&place, "mcp.call").len(), entries(&place, "mcp.result").len()), (1, 1));
    let started = place.home.records("ledger/cp-exec.jsonl");
    assert!(started.iter().any(|entry| entry["event"] == "exec.intent" && entry["data"]["argv"][0] == *server));
    let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
    let entries = place.home.records(format!("planes/ho1/runs/{run}.jsonl"));
    let noted = entries.iter().find(|entry| !entry["data"]["server"]["protocol"].is_null()).unwrap();
    assert_eq!(noted["data"]["server"]["sandbox"], "none", "{noted}");
}

/// Servers that answer beside those that do not, in each format.
#[test]
fn list_reports_each_server_that_fails() {
    let place = Place::of("cp-mcp");
    for (good, bad, status, code) in
        [(1, 0, 0, None), (0, 1, 7, Some("E_SERVER")), (1, 2, 1, Some("E_PARTIAL")), (0, 2, 7, Some("E_SERVER"))]
    {
        let answering = (0..good).map(|at| format!("--mcp=good{at}=cp-mcp serve"));
        let servers: Vec<String> = answering.chain((0..bad).map(|at| format!("--mcp=bad{at}=/bin/false"))).collect();
        let list = |format: &str| {
            let ran = place.subject().args(["call", "--list", "--format", format]).args(&servers).run();
            assert_eq!(ran.status, status, "{ran:?}");
            for at in 0..bad {
                assert!(ran.stderr.contains(&format!("the server bad{at} ended before it answered")), "{ran:?}");
            }
            ran
        };
        let text = list("text");
        assert_eq!(text.stdout.contains("good0/cp_read "), good == 1, "{text:?}");
        let closing = list("json").closing();
        assert_eq!(closing["error"]["code"].as_str(), code, "{closing}");
        let counts = if code.is_some() { &closing["error"]["details"] } else { &closing["data"] };
        assert_eq!((&counts["failed"], &counts["succeeded"]), (&json!(bad), &json!(good)), "{closing}");
    }
}

/// A program on PATH that starts another one, which the sandbox hides: the line of the hint lets it start, and the file
/// that the policy pins the name to starts without it.
#[test]
fn program_behind_a_script_starts_by_hint_or_by_pin() {
    let place = Place::of("cp-mcp");
    let directory = place.root.directory("aside/libexec").to_path_buf();
    let real = place.root.executable("aside/libexec/real", "#!/bin/sh\necho really >&2; exit 1\n");
    place.root.executable("bin/shim", format!("#!/bin/sh\nexec {} \"$@\"\n", real.display()));
    let list = |policy: &str| {
        place.policy(policy);
        let program = place.subject().also_on_path(place.root.join("bin"));
        program.args(["call", "--json", "--list", "--mcp", "z=shim"]).run().first_error()
    };
    let pattern = format!("{}/**", directory.display());
    let hidden = list("[exec]\nnetwork = []\n");
    let hint = hidden["details"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains(&format!("add \"{pattern}\" to execute in [paths]")), "{hidden}");
    for policy in
        [format!("[paths]\nexecute = [\"{pattern}\"]\n"), format!("[exec.pin]\nshim = \"{}\"\n", real.display())]
    {
        let started = list(&policy);
        assert!(started["message"].as_str().unwrap().contains("really"), "{policy}: {started}");
    }
}

#[test]
fn silent_server_of_a_call_ends_at_its_start_timeout_and_its_noise_is_named() {
    let place = Place::of("cp-mcp");
    let server = place.root.executable("silent", "#!/bin/sh\necho Server listening\nexec sleep 60\n");
    place.policy("[mcp.silent]\nstart_timeout = 3\n");
    let began = std::time::Instant::now();
    let ran = place.run(&["call", "--json", "--list", "--mcp", &format!("silent={}", server.display())]);
    let took = began.elapsed();
    let error = ran.first_error();
    assert!(error["message"].as_str().unwrap().contains("did not answer initialize within 3 s"), "{error}");
    assert!((3.0..4.6).contains(&took.as_secs_f64()), "{took:?}");
    let said = "wrote a line that is not a message: Server listening";
    assert_eq!(ran.stderr.matches(said).count(), 1, "{}", ran.stderr);
}
