//! Coding agents as backends: scripted streams of each agent, with failures that the agents report as success.

use cp_testkit::{Outcome, repository};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::llm::Llm;

const START: &str = r#"{"type":"system","subtype":"init","session_id":"s1","model":"m1"}"#;
const RECEIVED: &str = r#"{"type":"user","isReplay":true,"message":{"role":"user","content":[]}}"#;

/// The program of an agent that reads its prompt, prints these lines and exits with this status.
fn install(llm: &Llm, program: &str, lines: &[&str], errors: &str, end: &str) {
    let lines = lines.join("\n");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >arguments\ncat >prompt\ncat >&2 <<'END'\n{errors}\nEND\ncat <<'END'\n{lines}\nEND\n{end}\n"
    );
    llm.work.executable(program, script);
}

fn with_agents() -> Llm {
    let llm = Llm::new();
    let path = format!("{}:/usr/bin:/bin:{}", llm.work.display(), repository().join("scripts/backends").display());
    llm.set("PATH", &path)
}

fn ask(llm: &Llm, agent: &str, more: &[&str]) -> Outcome {
    llm.run(&[&["--backend", agent, "--retries", "0", "--timeout", "20"], more, &["go"]].concat())
}

/// The last line of Claude Code, with these members in place of those of a success.
fn result(changes: &Value) -> String {
    let usage =
        json!({"input_tokens": 7, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 3});
    let mut result = json!({"type": "result", "subtype": "success", "is_error": false, "result": "done", "session_id": "s1",
        "total_cost_usd": 0.25, "usage": usage, "permission_denials": [], "stop_reason": "end_turn"});
    for (name, value) in changes.as_object().unwrap() {
        result[name] = value.clone();
    }
    result.to_string()
}

#[test]
fn agent_answer_has_text_calls_usage_cost_and_session() {
    let llm = with_agents();
    let call = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"a"}}]}}"#;
    install(&llm, "claude", &[START, RECEIVED, call, &result(&json!({}))], "", "");
    let message =
        ask(&llm, "claude", &["-m", "opus", "-s", "be brief", "--budget-usd", "1"]).success().only()["data"].clone();
    assert_eq!((&message["id"], &message["content"], &message["model"]), (&json!("s1"), &json!("done"), &json!("m1")));
    let usage = json!({"input_tokens": 7, "output_tokens": 3, "cache_read_tokens": 2, "cache_write_tokens": 1, "cost_usd": 0.25});
    assert_eq!(message["usage"], usage);
    assert_eq!(message["blocks"][0]["name"], "Read", "{message}");
    // The agent ran the call itself, so that the caller has no call to answer.
    assert_eq!((&message["tool_calls"], &message["stop_reason"]), (&json!([]), &json!("end_turn")));
    assert!(llm.work.read("arguments").contains("--model=opus"), "{}", llm.work.read("arguments"));
    let prompt: Value = serde_json::from_str(&llm.work.read("prompt")).unwrap();
    assert_eq!(prompt["message"]["content"][0]["text"], "be brief\n\ngo");

    let item = r#"{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"done"}}"#;
    let end = r#"{"type":"turn.completed","usage":{"input_tokens":9,"cached_input_tokens":4,"output_tokens":3}}"#;
    install(&llm, "codex", &[r#"{"type":"thread.started","thread_id":"t9"}"#, item, end], "", "");
    let message = ask(&llm, "codex", &[]).success().only()["data"].clone();
    assert_eq!((&message["id"], &message["usage"]["input_tokens"]), (&json!("t9"), &json!(5)));
    // Codex reports no cost, so that a budget in dollars cannot be kept.
    let refused = ask(&llm, "codex", &["--budget-usd", "1"]);
    assert_eq!((refused.status, &refused.first_error()["code"]), (4, &json!("E_CONFIG")));
}

/// How an agent fails, as it was recorded: what it prints and how it ends, and the status and the code for the caller.
#[derive(Deserialize)]
struct Recorded {
    name: String,
    agent: String,
    #[serde(default)]
    lines: Vec<Value>,
    #[serde(default)]
    errors: String,
    #[serde(default)]
    end: String,
    status: i32,
    #[serde(default)]
    code: String,
}

#[test]
fn agent_failures_have_the_code_of_their_cause() {
    let recorded: Vec<Recorded> = serde_json::from_str(include_str!("data/agents.json")).unwrap();
    for Recorded { name, agent, lines, errors, end, status, code } in recorded {
        let line = |line: &Value| match line.as_str() {
            Some("START") => START.to_owned(),
            Some(_) => RECEIVED.to_owned(),
            None if agent == "claude" && line["type"] == "result" => result(line),
            None => line.to_string(),
        };
        let lines: Vec<String> = lines.iter().map(line).collect();
        let llm = with_agents();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        install(&llm, agent.trim_end_matches("-cli"), &lines, &errors, &end);
        let ran = ask(&llm, &agent, &[]);
        assert_eq!(ran.status, status, "{agent}: {name}: {}", ran.stdout);
        assert!(status == 0 || ran.first_error()["code"] == code, "{agent}: {name}: {}", ran.stdout);
    }
}

#[test]
fn agent_that_hangs_is_stopped_by_the_timeout() {
    let llm = with_agents();
    install(&llm, "claude", &[START, RECEIVED], "", "exec sleep 60");
    let ran = llm.run(&["--backend", "claude", "--retries", "0", "--timeout", "1", "go"]);
    assert_eq!((ran.status, &ran.first_error()["code"]), (8, &json!("E_TIMEOUT")));
}

#[test]
fn program_that_never_stops_writing_is_stopped_by_the_timeout() {
    let llm = Llm::new();
    let delta = r#"{"ok":true,"schema_version":"1.0","type":"delta","data":{"text":"x"}}"#;
    llm.work.executable("floods", format!("#!/bin/sh\nread -r line\nexec yes '{delta}'\n"));
    let ran = llm.run(&["--backend", "./floods", "--retries", "0", "--timeout", "1", "go"]);
    assert_eq!((ran.status, &ran.first_error()["code"]), (8, &json!("E_TIMEOUT")));
}

#[test]
fn agent_stream_cut_at_any_line_is_never_a_success() {
    let lines = [
        START,
        RECEIVED,
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"do"}]}}"#,
        &result(&json!({})),
    ];
    for kept in 0..lines.len() {
        let llm = with_agents();
        let half = &lines[kept][..lines[kept].len() / 2];
        install(&llm, "claude", &[&lines[..kept], &[half]].concat(), "", "");
        let ran = ask(&llm, "claude", &[]);
        assert_eq!((ran.status, &ran.first_error()["code"]), (7, &json!("E_NETWORK")), "{kept}: {}", ran.stdout);
    }
}

#[test]
fn agent_that_ran_tools_is_not_started_again() {
    let call = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}}"#;
    let limited = json!({"is_error": true, "api_error_status": 429, "result": "no", "total_cost_usd": 0, "usage": {}});
    let limited = result(&limited);
    let billed = result(&json!({"is_error": true, "api_error_status": 429, "result": "no"}));
    for (lines, starts) in [
        (vec![START, RECEIVED, &limited], 2),
        (vec![START, RECEIVED, &billed], 1),
        (vec![START, RECEIVED, call, &limited], 1),
    ] {
        let llm = with_agents();
        install(&llm, "claude", &lines, "", "echo x >>starts");
        let ran = llm.run(&["--backend", "claude", "--retries", "1", "--retry-max-wait", "0", "go"]);
        assert_eq!((ran.status, &ran.first_error()["code"]), (7, &json!("E_RATE_LIMITED")));
        assert_eq!(llm.work.read("starts").lines().count(), starts, "{}", ran.stdout);
    }
}

#[test]
fn agent_arguments_come_from_the_configuration_only() {
    let llm = with_agents();
    install(&llm, "claude", &[START, RECEIVED, &result(&json!({}))], "", "");
    llm.home.write("config/cp.toml", "[endpoints.claude]\narguments = [\"--permission-mode\", \"plan\"]\n");
    let row = json!({"messages": [{"role": "user", "content": "hi"}], "params": {"arguments": ["--evil"]}, "model": "claude/"});
    llm.feed(&["--rows"], &format!("{row}\n")).success();
    let arguments = llm.work.read("arguments");
    assert!(arguments.contains("--permission-mode plan") && !arguments.contains("evil"), "{arguments}");
}

#[test]
fn agent_that_is_missing_or_gets_tools_is_an_error() {
    let llm = with_agents();
    let missing = ask(&llm, "opencode", &[]);
    assert_eq!((missing.status, &missing.first_error()["code"]), (4, &json!("E_CONFIG")));
    install(&llm, "opencode", &[], "", "");
    let tools = json!({"messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "f", "input_schema": {"type": "object"}}]});
    let refused = llm.feed(&["--backend", "opencode", "--rows"], &format!("{tools}\n"));
    assert_eq!(refused.first_error()["code"], "E_VALIDATION", "{}", refused.stdout);
}
