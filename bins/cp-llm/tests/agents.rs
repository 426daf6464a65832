//! Coding agents as backends: scripted streams of each agent, with failures that the agents report as success.

use cp_testkit::{Outcome, repository};
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

#[test]
#[expect(clippy::too_many_lines, reason = "the answers of four agents are one table")]
fn agent_failures_have_the_code_of_their_cause() {
    let denied = json!({"permission_denials": [{"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {}}]});
    let [limited, session, forbidden, refused, turns, empty, denied, done] = [
        json!({"is_error": true, "api_error_status": 429, "result": "API Error: Request rejected"}),
        json!({"is_error": true, "result": "You've hit your session limit · resets 1:10am (UTC)"}),
        json!({"is_error": true, "api_error_status": 403, "result": "Your organization has disabled access"}),
        json!({"is_error": true, "stop_reason": "refusal", "result": "API Error: safeguards flagged this message"}),
        json!({"is_error": true, "subtype": "error_max_turns", "result": null}),
        json!({"result": ""}),
        denied,
        json!({}),
    ]
    .map(|changes| result(&changes));
    let codex_fails = |text: &str| json!({"type": "turn.failed", "error": {"message": text}}).to_string();
    let codex_budget = codex_fails("shared rollout token budget exhausted");
    let codex_cut = codex_fails("stream disconnected before completion: stream closed before response.completed");
    let codex_limit = codex_fails("You've hit your usage limit. Try again at 5:00 PM.");
    let codex_auth = codex_fails("unexpected status 401 Unauthorized: no");
    let codex_end = r#"{"type":"turn.completed","usage":{"input_tokens":9,"output_tokens":3}}"#;
    let finish = |reason: &str| {
        let tokens = json!({"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}});
        json!({"type": "step_finish", "sessionID": "s", "part": {"reason": reason, "tokens": tokens, "cost": 0}})
            .to_string()
    };
    let (stopped, calls) = (finish("stop"), finish("tool-calls"));
    let rejected = r#"{"type":"tool_use","sessionID":"s","part":{"tool":"bash","callID":"c","state":{"status":"error","input":{},"error":"The user rejected permission to use this specific tool call."}}}"#;
    let asking = "level=INFO message=asking id=per_1 permission=external_directory";
    let retrying = "level=ERROR message=\"stream error\" small=false error.error=\"Rate limit exceeded\"\n".repeat(3);
    let attempts = "Attempt 1 failed with status 429. Quota exceeded\n".repeat(3);
    let gemini_error = r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: exceeded your current quota]"},"stats":{}}"#;
    let gemini_tool = r#"{"type":"tool_use","tool_name":"run_shell_command","tool_id":"c","parameters":{}}"#;
    let gemini_denied = r#"{"type":"tool_result","tool_id":"c","status":"error","error":{"type":"tool_not_registered","message":"not found"}}"#;
    let gemini_done = r#"{"type":"result","status":"success","stats":{"input_tokens":1,"output_tokens":1}}"#;
    let hang = "exec sleep 60";
    let retry = |error: &str, status: Value, attempt: u64, delay: u64| {
        json!({"type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": 10, "retry_delay_ms": delay,
            "error": error, "error_status": status})
        .to_string()
    };
    let [bad_key, no_money, long_limit] =
        [("authentication_failed", 401, 500), ("billing_error", 400, 500), ("rate_limit", 429, 60_000)]
            .map(|(error, status, delay)| retry(error, json!(status), 1, delay));
    let thrice = |error: &str, status: Value| [1, 2, 3].map(|at| retry(error, status.clone(), at, 500)).join("\n");
    let (limits, cuts, faults) =
        (thrice("rate_limit", json!(429)), thrice("unknown", Value::Null), thrice("server_error", json!(529)));
    let broken = thrice("server_error", json!(500));
    let twice = [1, 2].map(|at| retry("rate_limit", json!(429), at, 500)).join("\n");
    let codex_filter =
        codex_fails("stream disconnected before completion: Incomplete response returned, reason: content_filter");
    let gemini_cut =
        r#"{"type":"result","status":"error","error":{"type":"unknown","message":"terminated"},"stats":{}}"#;
    for (name, agent, lines, errors, end, exit, code) in [
        ("rate limit with exit status 0", "claude", vec![START, RECEIVED, &limited], "", "", 7, "E_RATE_LIMITED"),
        ("session limit without a status", "claude", vec![START, &session], "", "", 7, "E_RATE_LIMITED"),
        ("access that an organization disabled", "claude", vec![START, RECEIVED, &forbidden], "", "", 4, "E_FORBIDDEN"),
        ("refusal", "claude", vec![START, RECEIVED, &refused], "", "", 4, "E_FORBIDDEN"),
        ("turn limit", "claude", vec![START, RECEIVED, &turns], "", "", 9, "E_BUDGET_EXHAUSTED"),
        ("empty answer", "claude", vec![START, RECEIVED, &empty], "", "", 7, "E_SERVER"),
        ("denied tool", "claude", vec![START, RECEIVED, &denied], "", "", 9, "E_HUMAN_REQUIRED"),
        ("lost prompt", "claude", vec![START, &done], "", "", 7, "E_SERVER"),
        ("end without a result", "claude", vec![START, RECEIVED], "", "", 7, "E_NETWORK"),
        ("killed agent", "claude", vec![START, RECEIVED], "", "kill -9 $$", 7, "E_NETWORK"),
        ("missing login", "claude", vec![], "Invalid API key · Please run /login", "exit 1", 4, "E_AUTH"),
        ("hang after the answer", "claude", vec![START, RECEIVED, &done], "", hang, 0, ""),
        ("rejected key, retried", "claude", vec![START, &bad_key], "", hang, 4, "E_AUTH"),
        ("no credit, retried", "claude", vec![START, &no_money], "", hang, 9, "E_BUDGET_EXHAUSTED"),
        ("rate limit, retried", "claude", vec![START, &limits], "", hang, 7, "E_RATE_LIMITED"),
        ("rate limit, retried late", "claude", vec![START, &long_limit], "", hang, 7, "E_RATE_LIMITED"),
        ("overload, retried", "claude", vec![START, &faults], "", hang, 7, "E_RATE_LIMITED"),
        ("error of the server, retried", "claude", vec![START, &broken], "", hang, 7, "E_SERVER"),
        ("cut stream, retried", "claude", vec![START, &cuts], "", hang, 7, "E_NETWORK"),
        ("answer after two retries", "claude", vec![START, RECEIVED, &twice, &done], "", "", 0, ""),
        ("refusal", "codex", vec![&codex_filter], "", "exit 1", 4, "E_FORBIDDEN"),
        ("cut stream", "gemini-cli", vec![gemini_cut], "", "", 7, "E_NETWORK"),
        ("unknown option", "claude", vec![], "error: unknown option", "exit 1", 1, "E_COMMAND_FAILED"),
        ("budget without a code", "codex", vec![&codex_budget], "", "exit 1", 9, "E_BUDGET_EXHAUSTED"),
        ("cut stream", "codex", vec![&codex_cut], "", "exit 1", 7, "E_NETWORK"),
        ("usage limit", "codex", vec![&codex_limit], "", "", 7, "E_RATE_LIMITED"),
        ("rejected key", "codex", vec![&codex_auth], "", "exit 1", 4, "E_AUTH"),
        ("turn without an answer", "codex", vec![codex_end], "", "", 7, "E_SERVER"),
        ("rejected tool, then nothing", "opencode", vec![rejected, &calls], "", "", 9, "E_HUMAN_REQUIRED"),
        ("question without end", "opencode", vec![], asking, hang, 9, "E_HUMAN_REQUIRED"),
        ("retries without end", "opencode", vec![], &retrying, hang, 7, "E_RATE_LIMITED"),
        ("answer without text", "opencode", vec![&stopped], "", "", 7, "E_SERVER"),
        ("nothing at all", "opencode", vec![], "", "", 7, "E_NETWORK"),
        ("error with exit status 0", "gemini-cli", vec![gemini_error], "", "", 7, "E_RATE_LIMITED"),
        ("retries of a quota", "gemini-cli", vec![], &attempts, hang, 7, "E_RATE_LIMITED"),
        (
            "tool that headless runs lack",
            "gemini-cli",
            vec![gemini_tool, gemini_denied, gemini_done],
            "",
            "",
            9,
            "E_HUMAN_REQUIRED",
        ),
        ("login in a browser", "gemini-cli", vec![], "Please visit the following URL to authorize", hang, 4, "E_AUTH"),
        ("silence", "gemini-cli", vec![], "", "", 7, "E_NETWORK"),
    ] {
        let llm = with_agents();
        install(&llm, agent.trim_end_matches("-cli"), &lines, errors, end);
        let ran = ask(&llm, agent, &[]);
        assert_eq!(ran.status, exit, "{name}: {}", ran.stdout);
        if exit != 0 {
            assert_eq!(ran.first_error()["code"], code, "{name}: {}", ran.stdout);
        }
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
    let limited = result(&json!({"is_error": true, "api_error_status": 429, "result": "no"}));
    for (lines, starts) in [(vec![START, RECEIVED, &limited], 2), (vec![START, RECEIVED, call, &limited], 1)] {
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
