//! A governed tree restricts every program that a model or a person can reach commands and files through. Each rule is
//! tried through each door, with a path outside of the tree as its control.

use std::collections::HashSet;

use cp_testkit::{Outcome, Place};
use serde_json::{Value, json};

/// A model that plays the turns of the file beside it for the first message of the conversation.
const MODEL: &str = r#"#!/usr/bin/python3
import json, os, sys
script = json.load(open(os.path.join(os.path.dirname(sys.argv[0]), "turns")))
for line in sys.stdin:
    record = json.loads(line)
    if record.get("type") != "prompt": continue
    messages = record["data"]["messages"]
    turns = script[messages[0]["content"]]
    n = sum(1 for turn in messages if turn["role"] == "assistant")
    calls = [{"id": "c%d" % n, "name": turns[n][0], "input": turns[n][1]}] if n < len(turns) else []
    message = {"id": "m", "role": "assistant", "content": "" if calls else "done", "tool_calls": calls, "input": [],
        "model": "x", "backend": "x", "stop_reason": "tool_use" if calls else "end_turn", "usage": {}}
    print(json.dumps({"ok": True, "schema_version": "1.0", "type": "message", "data": message}), flush=True)
"#;

/// An MCP server that reads, writes and executes files.
const SERVER: &str = r#"
import json, subprocess, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method, given = asked["method"], asked.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "act", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        path = given["arguments"]["path"]
        try:
            kind = given["arguments"]["kind"]
            if kind == "write": open(path, "w").write("x"); text = "wrote"
            elif kind == "read": text = open(path).read()
            else: text = subprocess.run(["sh", path], capture_output=True, text=True).stdout
        except OSError as e: text = str(e)
        result = {"content": [{"type": "text", "text": text}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": method}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

const POLICY: &str = r#"
[exec]
allowed_commands = ["touch", "cat", "sh", "true"]
intent = "off"
[paths]
read = ["."]
write = ["."]
execute = ["**"]
"#;

const CAPABILITIES: &str = r#"{"capabilities": {"read": ["own/**"], "write": ["own/*.txt"], "execute": ["own/yes.sh"],
  "forbidden": ["own/secret/*", "own/secret/s"]}}"#;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    Write,
    Read,
    Execute,
}

impl Access {
    fn command(self, path: &str) -> String {
        let program = match self {
            Self::Write => "touch",
            Self::Read => "cat",
            Self::Execute => "sh",
        };
        format!("{program} {path}")
    }

    /// The input of the tool `filesystem`, which executes nothing.
    fn operation(self, path: &str) -> Option<Value> {
        match self {
            Self::Write => Some(json!({"operation": "write_file", "path": path, "content": "x"})),
            Self::Read => Some(json!({"operation": "read_file", "path": path})),
            Self::Execute => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Execute => "execute",
        }
    }
}

/// Each rule: its name, an access, a path that the tree denies, and one that it allows. A path outside of the tree is
/// the third.
const RULES: [(&str, Access, &str, &str); 5] = [
    ("pristine", Access::Write, "lib/new.txt", "own/new.txt"),
    ("write", Access::Write, "other/new.txt", "own/new.txt"),
    ("forbidden", Access::Read, "own/secret/s", "own/s"),
    ("read", Access::Read, "other/s", "own/s"),
    ("execute", Access::Execute, "own/no.sh", "own/yes.sh"),
];

fn place() -> Place {
    let place = Place::new();
    place.policy(POLICY);
    for tree in ["tree", "beside"] {
        let tree = place.work.at(tree);
        for file in ["lib/s", "own/s", "own/secret/s", "other/s"] {
            tree.write(file, "it is read\n");
        }
        for script in ["own/no.sh", "own/yes.sh"] {
            tree.write(script, "echo it is $((40 + 2))\n");
        }
    }
    place.work.write("tree/modules/m/capabilities.json", CAPABILITIES);
    place.work.write("server.py", SERVER);
    place.root.executable("model", MODEL);
    place.root.directory("tools");
    place
}

/// Runs cp-toolloop with a model that makes these calls, those of its agent separately.
fn toolloop(place: &Place, calls: &[(&str, Value)], more: &[&str]) -> Outcome {
    place.root.write("turns", json!({"go": calls}).to_string());
    let model = place.root.join("model").display().to_string();
    let words = [&["--root", "tree", "--llm", &model][..], more, &["--", "go"]].concat();
    place.program("cp-toolloop").args(words).run()
}

type Door = (&'static str, fn(&Place, Access, &str) -> Option<String>);

/// Every door: it tries an access, and gives what was printed; `None` if it has no such access.
const DOORS: [Door; 12] = [
    ("cp-exec words", |place, access, path| {
        let command = access.command(path);
        let words: Vec<&str> = command.split(' ').collect();
        Some(place.program("cp-exec").args(["--root", "tree", "--"]).args(words).run().stdout)
    }),
    ("cp-exec line", |place, access, path| {
        let line = format!("true && {}", access.command(path));
        Some(place.program("cp-exec").args(["--root", "tree", "-c", &line]).run().stdout)
    }),
    ("cp-exec line, by its shell", |place, access, path| {
        let line = match access {
            Access::Write => format!("echo x > {path}"),
            Access::Read => format!("while read -r word; do echo \"$word\"; done < {path}"),
            Access::Execute => return None,
        };
        Some(place.program("cp-exec").args(["--root", "tree", "-c", &line]).run().stdout)
    }),
    ("cp-exec operation", |place, access, path| {
        let mut arguments = access.operation(path)?;
        let operation = arguments.as_object_mut()?.remove("operation")?;
        let request = json!({"tool": "filesystem", "operation": operation, "arguments": arguments});
        Some(place.program("cp-exec").args(["--root", "tree"]).stdin(request.to_string()).run().stdout)
    }),
    ("cp-toolloop shell", |place, access, path| {
        Some(toolloop(place, &[("shell", json!({"command": access.command(path)}))], &[]).stdout)
    }),
    ("cp-toolloop bash", |place, access, path| {
        Some(toolloop(place, &[("bash", json!({"command": access.command(path)}))], &[]).stdout)
    }),
    ("cp-toolloop filesystem", |place, access, path| {
        Some(toolloop(place, &[("filesystem", access.operation(path)?)], &[]).stdout)
    }),
    ("an MCP server of cp-toolloop", |place, access, path| {
        let call = ("act", json!({"kind": access.name(), "path": path}));
        Some(toolloop(place, &[call], &["--mcp", "s=/usr/bin/python3 server.py"]).stdout)
    }),
    ("cp-toolloop resume", |place, access, path| {
        let calls = [("shell", json!({"command": "true"})), ("shell", json!({"command": access.command(path)}))];
        let stopped = toolloop(place, &calls, &["--max-iterations", "1"]);
        let run = stopped.closing()["error"]["details"]["run_id"].as_str()?.to_owned();
        Some(place.program("cp-toolloop").args(["resume", &run, "--max-iterations", "3"]).run().stdout)
    }),
    ("cp-shell in a pipe", |place, access, path| {
        let request = json!({"operation": "execute_command", "command": format!("! {}", access.command(path))});
        Some(place.program("cp-shell").args(["--root", "tree"]).stdin(request.to_string()).run().stdout)
    }),
    ("the model of cp-shell", |place, access, path| {
        let call = json!({"tool_calls": [{"name": "bash", "input": {"command": access.command(path)}}]});
        let script = place.root.write("script", format!("{call}\n{{\"content\":\"It is over.\"}}\n"));
        let program = place.program("cp-shell").env("TERM", "xterm").env("CP_STUB_SCRIPT", script);
        let tools = place.root.join("tools").display().to_string();
        let words = ["--root", "tree", "--backend", "stub", "--tools", &tools];
        let mut terminal = program.args(words).terminal(100);
        terminal.wait_for(":quit ends");
        terminal.send("do it\r");
        terminal.wait_for("y = yes");
        terminal.send("y\r");
        Some(terminal.wait_for("It is over.") + &ledgers(place))
    }),
    ("cp-mcp serve", |place, access, path| {
        let (name, arguments) = match access {
            Access::Write => ("cp_write", json!({"path": path, "content": "x"})),
            Access::Read => ("cp_read", json!({"path": path})),
            Access::Execute => ("cp_run", json!({"command": access.command(path)})),
        };
        let client =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let lines = [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}}),
        ];
        let input = lines.map(|line| line.to_string() + "\n").concat();
        Some(place.program("cp-mcp").args(["serve", "--root", "tree"]).stdin(input).run().stdout)
    }),
];

/// The text of all ledgers of the home.
fn ledgers(place: &Place) -> String {
    let mut text = String::new();
    let mut left = vec![place.home.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|end| end == "jsonl") && !path.is_symlink() {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

/// The accesses through a door that were granted or denied wrongly.
fn wrong_at((door, attempt): Door) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut tried = HashSet::new();
    for (rule, access, denied, allowed) in RULES {
        for (path, expected) in
            [(format!("tree/{denied}"), false), (format!("tree/{allowed}"), true), (format!("beside/{denied}"), true)]
        {
            // Two rules share their control.
            if !tried.insert(path.clone()) {
                continue;
            }
            let place = place();
            let Some(printed) = attempt(&place, access, &path) else { continue };
            let done = match access {
                Access::Write => place.work.join(&path).exists(),
                Access::Read => printed.contains("it is read"),
                Access::Execute => printed.contains("it is 42"),
            };
            if done != expected {
                wrong.push(format!("{door}, {rule}: {} {path}: {done}\n{printed}", access.name()));
            }
        }
    }
    wrong
}

#[test]
fn tree_is_governed_through_every_door() {
    cp_testkit::needs!("python3");
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let doors = DOORS.map(|door| scope.spawn(move || wrong_at(door)));
        doors.into_iter().flat_map(|door| door.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn missing_tree_is_named_in_error() {
    let place = place();
    place.work.write("file", "");
    for (words, input) in [
        (&["cp-exec", "--", "true"][..], ""),
        (
            &["cp-exec", "--rows"],
            "{\"tool\":\"shell\",\"operation\":\"execute_command\",\"arguments\":{\"command\":\"true\"}}\n",
        ),
        (&["cp-exec", "check", "--", "true"], ""),
        (&["cp-toolloop", "--backend", "stub", "--", "go"], ""),
        (&["cp-mcp", "serve"], ""),
        (&["cp-shell"], "{\"operation\":\"governed_roots\"}\n"),
    ] {
        let rooted = |root| place.program(words[0]).args(["--root", root]).args(&words[1..]).stdin(input).run();
        for (root, status, code) in
            [("no-tree", 3, "E_NOT_FOUND"), ("no-tree/below", 3, "E_NOT_FOUND"), ("file", 2, "E_VALIDATION")]
        {
            let error = rooted(root).failed(status, code);
            assert_eq!(error["details"]["file"], root, "{words:?}: {error}");
        }
        rooted("tree").success();
    }
}

#[test]
fn undo_is_governed_by_tree_of_run() {
    cp_testkit::needs!("python3");
    for is_listed in [true, false] {
        let place = place();
        let write = json!({"operation": "write_file", "path": "tree/own/new.txt", "content": "x"});
        let ran = toolloop(&place, &[("filesystem", write)], &[]).success();
        let run = ran.closing()["data"]["run_id"].as_str().unwrap().to_owned();
        assert!(place.work.join("tree/own/new.txt").exists());
        if !is_listed {
            place.work.write("tree/modules/m/capabilities.json", r#"{"capabilities": {"write": []}}"#);
        }
        let undone = place.program("cp-toolloop").args(["undo", &run]).run();
        assert_eq!(undone.status == 0, is_listed, "{undone:?}");
        assert_eq!(place.work.join("tree/own/new.txt").exists(), !is_listed, "{undone:?}");
    }
}
