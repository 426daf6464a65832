//! `cp-exec hook`: what hosts ask, as they asked it, and what becomes of their tools.

use cp_testkit::{Outcome, Place, Program, repository};
use rustix::process::Signal;
use serde_json::{Value, json};

const POLICY: &str = r#"
[exec]
allowed_commands = ["echo", "touch", "rm"]
SETTINGS
[paths]
forbidden = ["**/.env"]
pristine = ["lib/**"]
[tools]
allow = ["Todo*", "mcp__*"]
approve = ["mcp__prod__*"]
"#;

const HOSTS: [&str; 2] = ["claude", "codex"];

/// What Claude Code has in its environment after `hook install`.
const SHELL: &str = "CLAUDE_CODE_SHELL_PREFIX=$CP_HOME/bin/claude-shell";

fn place_with(settings: &str) -> Place {
    let place = Place::of("cp-exec");
    place.policy(&POLICY.replace("SETTINGS", settings));
    place
}

/// The recorded question of a host about its shell tool, with another command, in this place.
fn question(place: &Place, host: &str, moment: &str, command: &str) -> Value {
    let file = repository().join("bins/cp-exec/tests/data/host-questions.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_shell = |line: &Value| {
        line["host"] == host
            && line["moment"] == moment
            && line["question"].to_string().contains("\"command\":\"echo ran")
    };
    let mut question = lines.find(is_shell).unwrap()["question"].take();
    question["cwd"] = place.work.display().to_string().into();
    question["tool_input"]["command"] = command.into();
    question
}

/// Claude Code's question about any tool.
fn about(place: &Place, call: &str, tool: &str, input: &Value) -> Value {
    json!({"hook_event_name":"PreToolUse","session_id":"s1","cwd":place.work.display().to_string(),"permission_mode":"default",
        "tool_use_id":call,"tool_name":tool,"tool_input":input})
}

fn ask(place: &Place, host: &str, question: &Value) -> Outcome {
    asking(place, host, question).run()
}

/// The hook as its host starts it: Claude Code has the program of its command lines in a variable.
fn asking(place: &Place, host: &str, question: &Value) -> Program {
    let (program, file) = (cp_testkit::program("cp-exec"), place.home.join("bin/claude-shell"));
    let home = file.ancestors().nth(2).unwrap().display();
    let words = format!("{} --home {home} --format raw hook shell claude --", program.display());
    let shell = place.home.executable("bin/claude-shell", format!("#!/bin/sh\nexec {words} \"$@\"\n"));
    place.subject().args(["hook", host]).env("CLAUDE_CODE_SHELL_PREFIX", shell).stdin(question.to_string())
}

/// The command in the answer to the host, or none.
fn rewritten(ran: &Outcome) -> Option<String> {
    let words: Value = serde_json::from_str(&ran.stdout).ok()?;
    words["hookSpecificOutput"]["updatedInput"]["command"].as_str().map(str::to_owned)
}

#[track_caller]
fn denied(ran: &Outcome, with: &str) {
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(
        ran.stderr.contains(with) && !ran.stdout.contains("\"allow\"") && rewritten(ran).is_none(),
        "{with}: {ran:?}"
    );
}

/// The entries about tools in the sessions of this place.
fn entries(place: &Place) -> Vec<Value> {
    let sessions = place.home.at("planes/ho1/sessions");
    let ledgers = sessions.names().into_iter().map(|session| sessions.records(format!("{session}/ledger/exec.jsonl")));
    ledgers.flatten().collect()
}

fn events(place: &Place, event: &str) -> Vec<Value> {
    entries(place).into_iter().filter(|entry| entry["event"] == event).collect()
}

/// The owner says yes to what was asked.
fn approve(place: &Place) {
    let id = events(place, "approval.asked")[0]["data"]["id"].as_str().unwrap().to_owned();
    let mut terminal = place.subject().args(["approve", &id]).terminal(80);
    terminal.wait_for("y = yes");
    terminal.send("y\r");
    terminal.end();
}

#[test]
fn what_is_allowed_runs_in_our_sandbox_on_the_record_of_the_hosts_session() {
    let (place, host) = (place_with(""), "codex");
    let told = ask(&place, host, &question(&place, host, "before", "echo 'it is' \"here\"")).code(0);
    let command = rewritten(&told).unwrap_or_else(|| panic!("{told:?}"));
    assert!(command.ends_with(r#" -c 'echo '\''it is'\'' "here"'"#), "{command}");
    assert_eq!(place.sh(&command).stdout, "it is here\n", "{host}");
    let of_call = entries(&place);
    let call = &events(&place, "host.intent")[0]["data"]["host_call"];
    for event in ["host.intent", "exec.intent", "exec.result"] {
        let entry = of_call.iter().find(|entry| entry["event"] == event).unwrap_or_else(|| panic!("{host}: {event}"));
        assert_eq!((&entry["data"]["host"], &entry["data"]["host_call"]), (&json!(host), call), "{entry}");
        assert!(entry["data"]["host_session"].is_string() && entry["session"].is_string(), "{entry}");
    }
    let inside = rewritten(&ask(&place, host, &question(&place, host, "before", &command)).code(0)).unwrap();
    assert!(inside.len() > command.len(), "a line of ours runs in the sandbox like any line: {inside}");
}

#[test]
fn claude_code_without_our_program_for_its_lines_is_refused() {
    let place = place_with("");
    place.policy(&POLICY.replace("SETTINGS", "").replace("\"Todo*\"", "\"Skill\""));
    let line = question(&place, "claude", "before", "echo hi");
    let skill = about(&place, "c", "Skill", &json!({"skill":"deploy"}));
    for question in [line, skill] {
        // The control: the same call with our program goes on by the rules of the host.
        assert_eq!(ask(&place, "claude", &question).code(0).stdout, "");
        let other = place.root.executable("other", "#!/bin/sh\n").display().to_string();
        let missing = place.home.join("other/bin/claude-shell").display().to_string();
        for program in ["", &other, &missing] {
            denied(&asking(&place, "claude", &question).env("CLAUDE_CODE_SHELL_PREFIX", program).run(), "hook install");
        }
        let asked = asking(&place, "claude", &question);
        place.home.executable("bin/claude-shell", "#!/bin/sh\nexec sh -c \"$@\"\n");
        denied(&asked.run(), "hook install");
        let asked = asking(&place, "claude", &question);
        std::fs::remove_file(place.home.join("bin/claude-shell")).unwrap();
        denied(&asked.run(), "hook install");
    }
}

#[test]
fn what_is_refused_is_refused_with_status_two_a_text_and_the_hosts_words() {
    for host in HOSTS {
        let place = Place::of("cp-exec");
        place.policy("[exec]\nallowed_commands = []\n");
        let ran = ask(&place, host, &question(&place, host, "before", "curl http://example.com"));
        denied(&ran, "allowed_commands");
        assert!(
            ran.stdout.contains(r#""permissionDecision":"deny""#) && ran.stdout.contains("allowed_commands"),
            "{ran:?}"
        );
        assert_eq!(events(&place, "exec.refused").len(), 1, "{host}");
        assert!(events(&place, "host.intent").is_empty());
    }
}

#[test]
fn what_an_owner_approved_passes_once() {
    let rule = "confirm = \"owner\"\n[[exec.rule]]\ncommand = \"touch\"\ndecision = \"confirm\"";
    let place = place_with(rule);
    let question = question(&place, "codex", "before", "touch made");
    let command = rewritten(&ask(&place, "codex", &question).code(0)).unwrap();
    let run = || (place.sh(&command).status, std::fs::remove_file(place.work.join("made")).is_ok());
    assert_eq!(run(), (126, false));
    approve(&place);
    assert_eq!(run(), (0, true));
    assert_eq!(run(), (126, false), "it was for once");
    assert_eq!(events(&place, "approval.spent").len(), 1);
}

#[test]
fn questions_at_once_are_answered_alike_in_one_session() {
    let place = place_with("");
    let question = question(&place, "codex", "before", "echo hi");
    let hooks = [(); 4].map(|()| asking(&place, "codex", &question).start());
    let all = hooks.map(cp_testkit::Background::finish);
    assert!(all.iter().all(|ran| ran.status == 0 && ran.stdout == all[0].stdout), "{all:?}");
    assert_eq!(place.home.at("planes/ho1/sessions").names().len(), 1);
    assert_eq!(events(&place, "host.intent").len(), 4);
}

#[test]
fn file_tools_meet_the_file_rules() {
    let place = place_with("");
    let told = |tool: &str, input: Value| ask(&place, "claude", &about(&place, "c", tool, &input));
    for (tool, input) in [
        ("Read", json!({"file_path":"src/a"})),
        ("Write", json!({"file_path":place.work.join("new").display().to_string(),"content":"x"})),
        ("Read", json!({"file_path":"lib/a"})),
        ("Glob", json!({"pattern":"**/*.rs"})),
        ("TodoWrite", json!({"todos":[]})),
        ("mcp__docs__find", json!({"query":"/etc/shadow","path":"src"})),
        // The owner lists the tools of this server, so the name decides.
        ("mcp__docs__run", json!({"script":"1"})),
        ("mcp__docs__batch", json!({"calls":[{"command":"id"}]})),
    ] {
        let ran = told(tool, input).code(0);
        assert_eq!(ran.stdout, "", "the host goes on by its own rules: {ran:?}");
    }
    for (tool, input, rule) in [
        ("Read", json!({"file_path":".env"}), "forbidden"),
        ("Write", json!({"file_path":"a/../.env"}), "forbidden"),
        ("Edit", json!({"file_path":"lib/a"}), "pristine"),
        ("Edit", json!({"file_path":".claude/settings.json"}), "protected"),
        ("Write", json!({"file_path":".github/hooks/x.json"}), "protected"),
        ("Read", json!({"file_path":"/etc/passwd"}), "paths.read"),
        ("Read", json!({"file_path":"~/.ssh/id_ed25519"}), "paths.read"),
        ("Glob", json!({"pattern":"/etc/*"}), "paths.read"),
        ("Write", json!({"content":"x"}), "host_tool"),
        ("WebFetch", json!({"url":"http://example.com"}), "tools.allow"),
        ("mcp__docs__find", json!({"path":"/etc/shadow"}), "paths.read"),
        ("mcp__docs__find", json!({"target_file":"lib/a"}), "pristine"),
        ("Frobnicate", json!({"x":1}), "tools.allow"),
    ] {
        denied(&told(tool, input.clone()), "");
        let refused = events(&place, "exec.refused");
        let last = refused.last().unwrap();
        let secret = rule == "paths.read" && last["data"]["rule"] == "secret";
        assert!(last["data"]["rule"] == rule || secret, "{tool} {input}: {last}");
    }
}

#[test]
fn a_tool_that_the_policy_lists_waits_for_its_owner() {
    let place = place_with("");
    let question = about(&place, "c", "mcp__prod__deploy", &json!({"to":"all"}));
    denied(&ask(&place, "claude", &question), "tools.approve");
    approve(&place);
    let other = about(&place, "d", "mcp__prod__deploy", &json!({"to":"none"}));
    denied(&ask(&place, "claude", &other), "tools.approve");
    assert_eq!(ask(&place, "claude", &question).code(0).stdout, "");
    denied(&ask(&place, "claude", &question), "tools.approve");
    assert_eq!(events(&place, "approval.spent").len(), 1);
}

#[test]
fn output_is_recorded_by_its_hash() {
    let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
    for host in HOSTS {
        let place = place_with("");
        let text = question(&place, host, "after", "echo hi").to_string();
        let text = text.replace("\"hi\"", &format!("\"{key}\"")).replace("hi\\n", &format!("{key}\\n"));
        let ran = ask(&place, host, &serde_json::from_str(&text).unwrap()).code(0);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!said.contains(&key), "{host}: {ran:?}");
        let result = &events(&place, "host.result")[0]["data"];
        assert!(result["output"]["content"].is_null(), "{result}");
        assert!(result["output"]["sha256"].as_str().unwrap().starts_with("sha256:"), "{result}");
    }
    let place = place_with("");
    place.policy(&format!("{}[llm]\nlog_content = true\n", POLICY.replace("SETTINGS", "")));
    ask(&place, "codex", &question(&place, "codex", "after", "echo hi")).code(0);
    assert_eq!(events(&place, "host.result")[0]["data"]["output"]["content"], "hi\n");
}

#[test]
fn no_failure_lets_a_tool_run() {
    let question = |place: &Place| question(place, "claude", "before", "echo hi");
    let place = place_with("");
    ask(&place, "claude", &question(&place)).code(0);
    for broken in ["", "{", "[]", "{}", "\u{0}", r#"{"hook_event_name":"PreToolUse","session_id":"s"}"#] {
        denied(&place.feed(&["hook", "claude"], broken), "✗");
    }
    let mut slash = question(&place);
    slash["session_id"] = "../x".into();
    denied(&ask(&place, "claude", &slash), "slash");
    for host in ["nobody", "gemini", "copilot", "opencode"] {
        denied(&place.feed(&["hook", host], "{}"), "invalid value");
    }
    denied(&place.subject().args(["hook", "claude"]).env("CP_FORMAT", "json").stdin("{").run(), "✗");

    let broken = |break_it: &dyn Fn(&Place)| {
        let place = place_with("");
        ask(&place, "claude", &question(&place)).code(0);
        break_it(&place);
        ask(&place, "claude", &question(&place))
    };
    denied(&broken(&|place| place.policy("[exec]\nnonsense = 1")), "nonsense");
    denied(
        &broken(&|place| std::fs::remove_file(place.home.join("config/policy.toml")).unwrap()),
        "there is no policy",
    );
    denied(&broken(&|place| drop(place.home.write("config/cp.toml", "format = 3"))), "format");
    denied(
        &broken(&|place| {
            let ledger = place
                .home
                .join("planes/ho1/sessions")
                .join(&place.home.at("planes/ho1/sessions").names()[0])
                .join("ledger/exec.jsonl");
            std::fs::remove_file(&ledger).unwrap();
            std::fs::create_dir(&ledger).unwrap();
        }),
        "exec.jsonl",
    );

    // A disk that is full, as far as files go; nobody who reads the answer; no cp-session for the first question.
    let command = format!("printf %s '{}' | (ulimit -f 0; {SHELL} cp-exec hook claude)", question(&place));
    let mut other = question(&place);
    other["tool_use_id"] = "full".into();
    denied(&place.sh(&command.replace(&question(&place).to_string(), &other.to_string())), "✗");
    let closed = place.shell(
        "bash",
        &format!("printf %s '{}' | {SHELL} cp-exec hook claude | true; exit ${{PIPESTATUS[1]}}", question(&place)),
    );
    assert!(matches!(closed.run().status, 0 | 2), "it was answered, or not");
    let closed = place.sh(&format!("printf %s '{}' | {SHELL} cp-exec hook claude >&-", question(&place)));
    assert_eq!(closed.status, 2, "{closed:?}");
    let alone = place_with("");
    alone.install("cp-exec");
    denied(&ask(&alone, "claude", &question(&alone)), "cp-session");
}

#[test]
fn a_question_that_does_not_end_is_answered_with_no() {
    let place = place_with("");
    let silent = place.subject().args(["hook", "claude"]).start();
    let mut signalled = place.subject().args(["hook", "claude"]).start();
    signalled.write("{");
    // Once it reads, it notices signals.
    std::thread::sleep(std::time::Duration::from_millis(300));
    signalled.signal(Signal::TERM);
    denied(&signalled.wait(), "interrupted");
    denied(&silent.wait(), "no answer within 5 s");
}

#[test]
fn what_is_no_question_about_a_tool_passes() {
    let place = place_with("");
    let other = json!({"hook_event_name":"Notification","session_id":"s1","message":"hello"});
    assert_eq!(ask(&place, "claude", &other).code(0).stdout, "");
    assert!(!place.home.exists() || place.home.at("planes").names().is_empty(), "nothing is made for it");
}

#[test]
fn transcript_joins_session_of_its_host() {
    let place = place_with("");
    let told = ask(&place, "codex", &question(&place, "codex", "before", "echo hi"));
    place.sh(&rewritten(&told).unwrap());
    let id = question(&place, "codex", "before", "")["session_id"].as_str().unwrap().to_owned();
    let user = json!({"type":"user","sessionId":id,"message":{"role":"user","content":"do it"}});
    place.work.write("transcript.jsonl", format!("{user}\n"));
    let ran = place.sh(&format!("jq -c '{{role: .type, content: .message.content}}' transcript.jsonl | cp-session append --rows --session $(cp-session start --host codex --host-session {id} --format text)"));
    let session = place.home.at("planes/ho1/sessions").names();
    assert_eq!((session.len(), &ran.of("item")[0]["session_id"]), (1, &json!(session[0])), "{ran:?}");
    let shown = place.sh(&format!("cp-session show {0} | jq .data.turns; cp-log audit {0} | tail -n 1 | jq -c .ok; cp-session start --host codex --host-session {id} | jq -r .data.session_id", session[0]));
    assert_eq!(shown.stdout, format!("1\ntrue\n{}\n", session[0]), "{shown:?}");
}

fn place_of_any_command() -> Place {
    let place = Place::of("cp-exec");
    place.policy("[exec]\nallowed_commands = [\"*\"]\n");
    place
}

/// Runs a line as Claude Code would, in a conversation of its own.
fn host_shell(place: &Place, line: &str) -> Outcome {
    let command = place.subject().args(["--format", "raw", "hook", "shell", "claude", line]);
    command.env("CLAUDE_CODE_SESSION_ID", "s").env("CLAUDE_CODE_CHILD_SESSION", "1").run()
}

#[test]
fn host_shell_keeps_status_and_passes_working_directory_on() {
    let place = place_of_any_command();
    let cwd_file = place.root.join("claude-12ab-cwd");
    let wrapped = |snapshot: &str, command: &str, file: &str| {
        format!("source {snapshot} 2>/dev/null || true && eval '{command}' < /dev/null && pwd -P >| {file}")
    };
    let cwd = cwd_file.display().to_string();
    place.work.directory("sub");
    let ran = host_shell(&place, &wrapped("/none", "cd sub; printenv HOME", &cwd)).code(0);
    assert_eq!(ran.stdout, "/tmp/home\n", "{ran:?}");
    let sub = place.work.join("sub").canonicalize().unwrap();
    assert_eq!(std::fs::read_to_string(&cwd_file).unwrap().trim_end(), sub.to_str().unwrap());
    assert_eq!(host_shell(&place, &wrapped("/none", "exit 3", &cwd)).status, 3);
    assert_eq!(host_shell(&place, "exit 4").status, 4, "a line of another hook");

    // A directory outside of the policy, and a name that Claude Code does not give, stay in the sandbox.
    std::fs::remove_file(&cwd_file).unwrap();
    host_shell(&place, &wrapped("/none", "cd /", &cwd)).code(0);
    assert!(!cwd_file.exists());
    let other = place.root.join("bashrc");
    host_shell(&place, &wrapped("/none", "true", &other.display().to_string()));
    assert!(!other.exists());

    // The functions and the PATH of the person's shell stay outside.
    let file =
        place.user.write(".claude/shell-snapshots/snapshot-bash-1.sh", "greet() { echo outside; }\nPATH=/none\n");
    let ran = host_shell(&place, &wrapped(file.to_str().unwrap(), "greet 2>/dev/null; printenv LANG", &cwd)).code(0);
    assert!(!ran.stdout.contains("outside"), "{ran:?}");
    let intents = events(&place, "exec.intent");
    assert_eq!(intents[0]["data"]["line"], "cd sub; printenv HOME");
    assert_eq!((&intents[0]["data"]["host"], &intents[0]["data"]["host_session"]), (&json!("claude"), &json!("s")));
}

#[test]
fn host_shell_outside_of_host_is_refused() {
    let place = place_of_any_command();
    place.subject().args(["hook", "shell", "claude", "touch made"]).run().code(2);
    // Without the mark of a command, the line is a server, which is not a shell line.
    let server = |line: &str| {
        let command = place.subject().args(["--format", "raw", "hook", "shell", "claude", line]);
        command.env("CLAUDE_CODE_SESSION_ID", "s").run()
    };
    assert_ne!(server("touch made; touch more").status, 0);
    assert!(!place.work.join("made").exists() && !place.work.join("more").exists());
    host_shell(&place, "touch made").code(0);
    assert!(place.work.join("made").exists(), "the control");
}
