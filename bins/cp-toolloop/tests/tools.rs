//! Tools: how they are found and described, and the tools that are left out.

use crate::mcp::server;
use crate::toolloop::{Results, ToolLoop, words_of};
use serde_json::{Value, json};

fn names(page: &Value) -> Vec<&str> {
    page["data"]["items"].as_array().unwrap().iter().filter_map(|item| item["name"].as_str()).collect()
}

#[test]
fn tool_is_listed_with_schema_and_origin() {
    let place = ToolLoop::new();
    place.tool("good", r#","parameters":{"type":"object"},"idempotent":true"#, "true");
    let ran = place.with_tools(&["tools", "--allow", "good"]);
    let tool = &ran.closing()["data"]["items"][0];
    assert_eq!((&tool["status"], &tool["input_schema"]), (&json!("ok"), &json!({"type":"object"})));
    assert_eq!((&tool["origin"]["kind"], &tool["hints"]["idempotent"]), (&json!("executable"), &json!(true)));
    assert!(tool["origin"]["sha256"].as_str().unwrap().starts_with("sha256:"));
}

#[test]
fn broken_tool_is_left_out_with_reason() {
    let place = ToolLoop::new();
    place.root.executable("tools/noise", "#!/bin/sh\n# --describe\necho hello\n");
    place.root.executable("tools/wrong", "#!/bin/sh\n# --describe\necho '{\"name\":\"../x\"}'\n");
    place.root.executable(
        "tools/remote",
        "#!/bin/sh\n# --describe\necho '{\"name\":\"remote\",\"parameters\":{\"$ref\":\"http://127.0.0.1/x\"}}'\n",
    );
    place.root.executable("tools/shell", "#!/bin/sh\n# --describe\necho '{\"name\":\"shell\"}'\n");
    place.root.executable("tools/sleeps", "#!/bin/sh\n# --describe\nsleep 60\n");
    place.tool("good", "", "true");
    let began = std::time::Instant::now();
    let ran = place.with_tools(&["tools"]);
    assert!(began.elapsed().as_secs() < 30);
    assert_eq!(names(&ran.closing()), ["good", "filesystem", "system", "shell", "bash"], "{ran:?}");
    let items = ran.closing()["data"]["items"].as_array().unwrap().clone();
    assert_eq!(items.iter().filter(|item| item["status"] == "broken").count(), 5, "{ran:?}");
}

#[test]
fn only_allowed_tools_are_started_with_describe() {
    let place = ToolLoop::new();
    place.root.executable("tools/innocent", "#!/bin/sh\necho asked >innocent\n");
    place.root.executable("tools/other", "#!/bin/sh\n# --describe\necho asked >other; echo '{\"name\":\"other\"}'\n");
    let ran = place.with_tools(&["tools", "--allow", "system"]);
    assert_eq!(names(&ran.closing()), ["system"], "{ran:?}");
    assert_eq!((place.written("innocent"), place.written("other")), (String::new(), String::new()));
}

#[test]
fn sidecar_describes_tool_without_describe() {
    let place = ToolLoop::new();
    place.root.executable("tools/plain.sh", "#!/bin/sh\necho plain\n");
    let sidecar = "{\n  \"name\": \"plain\",\n  \"parameters\": {\n    \"type\": \"object\",\n    \"description\": \"two  blanks\"\n  }\n}\n";
    place.root.write("tools/plain.sh.json", sidecar);
    place.script(&[r#"{"tool_calls":[{"name":"plain"}]}"#]);
    let ran = place.with_tools(&["--allow", "plain", "x"]);
    assert_eq!(ran.results(), ["plain\n"], "{ran:?}");
}

#[test]
fn catalogue_names_executables_in_its_directory() {
    let place = ToolLoop::new();
    place.root.directory("tools/bin");
    place.root.executable("tools/bin/get_it", "#!/bin/sh\nprintf '%s' \"$1\" >>\"${LLM_OUTPUT:-/dev/stdout}\"\n");
    let catalogue = r#"[{"name":"get_it","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}},{"name":"gone"}]"#;
    place.root.write("tools/functions.json", catalogue);
    place.script(&[r#"{"tool_calls":[{"name":"get_it","input":{"a":1}}]}"#]);
    let ran = place.with_tools(&["x"]);
    assert_eq!(ran.results(), [r#"{"a":1}"#], "{ran:?}");
    assert!(ran.stderr.contains("gone is left out"), "{ran:?}");
}

#[test]
fn linked_tool_is_started_by_name_of_link() {
    // As llm-functions builds them: links in bin, named for the tools, to one script that looks for the tool by its own
    // name.
    let place = ToolLoop::new();
    for directory in ["tools/bin", "tools/scripts", "tools/tools"] {
        std::fs::create_dir(place.root.join(directory)).unwrap();
    }
    let run = r#"#!/usr/bin/env bash
set -e
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
if [[ "$0" == *run-tool.sh ]]; then name="$1" data="$2"; else name="$(basename "$0")" data="$1"; fi
[[ -n "$data" ]] || exit 1
if [[ -z "$LLM_OUTPUT" ]]; then kept=1; LLM_OUTPUT="$(mktemp)"; export LLM_OUTPUT; fi
"$root/tools/$name.sh" --word "$(jq -r .word <<<"$data")"
if [[ -n "$kept" ]]; then cat "$LLM_OUTPUT"; fi
"#;
    place.root.executable("tools/scripts/run-tool.sh", run);
    for name in ["shout", "whisper"] {
        place.root.executable(
            format!("tools/tools/{name}.sh"),
            format!("#!/bin/sh\necho \"{name}: $2\" >>\"$LLM_OUTPUT\"\n"),
        );
        std::os::unix::fs::symlink("../scripts/run-tool.sh", place.root.join(format!("tools/bin/{name}"))).unwrap();
    }
    let catalogue =
        json!([{"name": "shout", "description": "d", "parameters": {"type": "object"}}, {"name": "whisper"}]);
    place.root.write("tools/functions.json", catalogue.to_string());
    let call = |name: &str| json!({"tool_calls": [{"name": name, "input": {"word": "it's"}}]}).to_string();
    place.script(&[&call("shout"), &call("whisper")]);
    let ran = place.with_tools(&["x"]);
    assert_eq!(ran.results(), ["shout: it's\n", "whisper: it's\n"], "{ran:?}");
    // A link with a new target is another tool.
    let stopped = place.with_tools(&["--max-iterations", "1", "x"]);
    std::fs::remove_file(place.root.join("tools/bin/whisper")).unwrap();
    std::os::unix::fs::symlink("../tools/whisper.sh", place.root.join("tools/bin/whisper")).unwrap();
    let resumed = place.run(&words_of(&stopped.detail("resume")));
    assert!(resumed.results()[0].contains("has changed since the run started"), "{resumed:?}");
}

#[test]
fn missing_tools_directory_is_an_error() {
    let ran = ToolLoop::new().run(&["--tools", "/nowhere", "x"]);
    assert_eq!((ran.status, &ran.error()["code"]), (3, &json!("E_NOT_FOUND")), "{ran:?}");
    assert!(ran.error()["message"].as_str().unwrap().contains("/nowhere"));
}

#[test]
fn changed_executable_is_not_started() {
    let place = ToolLoop::new();
    place.tool("good", "", "echo one");
    place.script(&[r#"{"tool_calls":[{"name":"good"}]}"#, r#"{"tool_calls":[{"name":"good"}]}"#]);
    let stopped = place.with_tools(&["--max-iterations", "1", "x"]);
    assert_eq!(stopped.results(), ["one\n"], "{stopped:?}");
    place.tool("good", "", "echo two; echo changed >changed");
    let ran = place.run(&words_of(&stopped.detail("resume")));
    assert!(ran.results()[0].contains("has changed since the run started"), "{ran:?}");
    assert_eq!(place.written("changed"), "");
}

#[test]
fn tools_of_server_are_offered_and_called() {
    cp_testkit::needs!("python3");
    let place = ToolLoop::new();
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let tools = ["say", "system", "../x"].map(|name| json!({"name": name, "inputSchema": schema}));
    let calls = "    return arguments['text'] + ' ' + str('OPENAI_API_KEY' in os.environ)";
    let server = format!("s={}", server(&place, &json!(tools), calls));
    let listed = place.run(&["tools", "--mcp", &server]);
    let expected = ["s_system", "say", "filesystem", "system", "shell", "bash"];
    assert_eq!(names(&listed.closing()), expected, "{listed:?}");
    let refused = listed.data()["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&refused["left_out"], &refused["status"]), (&json!("s: ../x"), &json!("broken")), "{refused}");
    place.script(&[r#"{"tool_calls":[{"name":"say","input":{"text":"hi"}},{"name":"say","input":{}},{"name":"s_system","input":{"text":"x"}}]}"#]);
    let command = place.command(&["--mcp", &server, "--allow", "say", "x"]);
    let ran = command.env("OPENAI_API_KEY", "k").run();
    let results = ran.results();
    assert_eq!((results[0].as_str(), results[2].as_str()), ("hi False", "Tool not permitted: s_system"), "{ran:?}");
    assert!(results[1].contains("missing properties 'text'"));
    assert!(ran.of("tool_result")[0]["receipt"]["seq"].is_u64() && ran.of("tool_result")[1]["receipt"].is_null());
    assert_eq!(place.run(&["--mcp", "nonsense", "x"]).status, 2);
}

#[test]
fn tool_name_and_description_cannot_forge_lines() {
    let place = ToolLoop::new();
    let description = "\\u001b[31mred\\u009b2J\\nsecond";
    place.root.executable(
        "tools/good",
        format!("#!/bin/sh\n# --describe\nprintf %s '{{\"name\":\"good\",\"description\":\"{description}\"}}'\n"),
    );
    place.root.executable("tools/bad", "#!/bin/sh\n# --describe\nprintf %s '{\"name\":\"x\\n✓ shell\"}'\n");
    let listed = place.with_tools(&["tools", "--format", "text"]);
    assert!(listed.stdout.contains("^[[31mred<U+009B>2J"), "{listed:?}");
    place.script(&[r#"{"tool_calls":[{"name":"x\n✓ shell"},{"name":"good","input":"{broken"}]}"#]);
    let failed = place.with_tools(&["--format", "text", "x"]);
    let shown = place.run(&["show", "RUN-", "--format", "text"]);
    assert!(shown.stdout.contains("x^J✓ shell"), "{shown:?}");
    let warned = place.with_tools(&["tools"]);
    for text in [&listed.stdout, &listed.stderr, &failed.stderr, &shown.stdout, &warned.stderr] {
        assert!(!text.lines().any(|line| line.starts_with("✓ shell")), "{text}");
    }
}

#[test]
fn invalid_arguments_are_a_failed_result() {
    let place = ToolLoop::new();
    place.tool("good", "", "echo ran >>ran");
    place.script(&[
        r#"{"tool_calls":[{"id":"a","name":"good","input":"{broken"},{"id":"b","name":"good","input":"null"}]}"#,
        r#"{"tool_calls":[{"id":"c","name":"good","input":{}}]}"#,
    ]);
    let ran = place.with_tools(&["x"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let results = ran.results();
    assert_eq!(results[0], "the arguments are not a JSON object: {broken");
    assert_eq!(results[1], "the arguments are not a JSON object: null");
    assert_eq!(ran.of("message")[0]["content"][0], json!({"type":"tool_use","id":"a","name":"good","input":{}}));
    assert_eq!(place.written("ran"), "ran\n");
}

#[test]
fn link_scripts_are_hidden_from_model() {
    let place = ToolLoop::new();
    let real =
        "#!/bin/sh\nif [ \"$1\" = --describe ]; then echo \"{\\\"name\\\":\\\"${0##*/}\\\"}\"; exit; fi\nexit 3\n";
    place.root.executable("real", real);
    std::os::unix::fs::symlink("../real", place.root.join("tools/one")).unwrap();
    place.script(&[r#"{"tool_calls":[{"name":"one"}]}"#]);
    let ran = place.with_tools(&["x"]);
    assert_eq!(ran.results(), [format!("{}/one exited with 3", place.tools())], "{ran:?}");
}
