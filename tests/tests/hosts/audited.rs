//! The transcript of an agent compared with the ledger of our hook: a session is complete, and a call that the hook was not asked about is
//! named.

use serde_json::{Value, json};

use super::agent::{Agent, Host, hooked};
use super::model::Call;

const POLICY: &str = "[exec]
allowed_commands = [\"seq\"]
[paths]
read = [\".\"]
write = [\".\"]
forbidden = [\"secret/**\"]
[tools]
allow = [\"*\"]
";

/// Runs a session of several calls and compares its transcript.
fn audited(skips: bool) -> cp_testkit::Outcome {
    let agent = Agent::new(Host::Claude);
    agent.govern(POLICY);
    agent.place.work.write("a file", "text");
    agent.place.work.directory("secret");
    if skips {
        skip_one(&agent);
    }
    let host = Host::Claude;
    let path = |name: &str| agent.place.work.join(name).display().to_string();
    let turns = vec![
        vec![host.shell("seq 1"), host.shell("seq 2"), host.shell("seq 3")],
        vec![Call { tool: "Read", input: json!({"file_path": "a file"}) }],
        vec![host.write(&path("open"), "text")],
        vec![host.write(&path("secret/hidden"), "text")],
        vec![Call { tool: "Frobnicate", input: json!({"a": 1}) }],
        vec![Call {
            tool: "Agent",
            input: json!({"description": "d", "prompt": "go", "subagent_type": "general-purpose"}),
        }],
        vec![host.shell("seq 4")],
    ];
    let (outcome, model) = agent.run(turns);
    assert!(model.results().len() >= 4, "{outcome:?}\n{model:?}");
    let found = agent.place.sh("ls \"$HOME\"/.claude/projects/*/*.jsonl").stdout;
    let [transcript] = found.lines().collect::<Vec<_>>()[..] else { panic!("{found}") };
    agent.place.program("cp-log").args(["audit", "--transcript", transcript]).run()
}

/// Puts a program before the hook that does not ask it about one command.
fn skip_one(agent: &Agent) {
    let file = ".claude/settings.json";
    let mut settings: Value = serde_json::from_str(&agent.place.user.read(file)).unwrap();
    let hook = &mut settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"];
    let command = hook.as_str().unwrap();
    let script = format!(
        "#!/bin/sh\nread -r question\ncase $question in *'seq 2'*) exit 0 ;; esac\nprintf '%s' \"$question\" | {{ {command}; }}\n"
    );
    *hook = agent.place.root.executable("skip", script).display().to_string().into();
    // The program would run in the sandbox, where it cannot ask.
    settings.as_object_mut().unwrap().remove("env");
    agent.place.user.write(file, settings.to_string());
}

#[test]
fn audit_of_session_names_the_call_that_the_hook_did_not_see() {
    if !Host::Claude.is_there() {
        return;
    }
    let complete = audited(false).success();
    let data = &complete.closing()["data"];
    let counts = ["decided", "refused", "rejected", "unseen", "contradicted", "absent"].map(|name| data[name].clone());
    assert_eq!(counts, [7, 1, 1, 0, 0, 0].map(Value::from), "{complete:?}");
    let runs = complete.of("item").into_iter().filter(|item| item["tool"] == "Bash" && !item["ended"].is_null());
    assert_eq!(runs.count(), 4, "{complete:?}");

    let ran = audited(true);
    let error = ran.failed(10, "E_UNSEEN");
    assert!(error["message"].as_str().unwrap().contains("Bash call_1_1, unseen"), "{error}");
    assert_eq!(ran.closing()["error"]["code"], "E_UNSEEN");
    let unseen = ran.of("item").into_iter().filter(|item| item["holds"] == false);
    assert_eq!(unseen.count(), 1, "{ran:?}");
}

#[test]
fn audit_of_session_of_each_host_decides_each_call() {
    for host in hooked() {
        let pattern = if host == Host::Claude { ".claude/projects/*/*.jsonl" } else { ".codex/sessions/*/*/*/*.jsonl" };
        for governed in [true, false] {
            let agent = Agent::new(host);
            if governed {
                agent.govern(POLICY);
            } else {
                agent.place.policy(POLICY);
            }
            let path = agent.place.work.join("open").display().to_string();
            let both = vec![host.shell("seq 2"), host.shell("seq 2")];
            let (outcome, model) = agent.run(vec![both, vec![host.shell("seq 3")], vec![host.write(&path, "text")]]);
            agent.place.program("cp-log").args(["append", "hello"]).run().success();
            let found = agent.place.sh(&format!("ls \"$HOME\"/{pattern}")).stdout;
            let [transcript] = found.lines().collect::<Vec<_>>()[..] else { panic!("{found} {outcome:?}\n{model:?}") };
            let ran = agent.place.program("cp-log").args(["audit", "--transcript", transcript]).run();
            let closing = ran.closing();
            let counts = if governed { &closing["data"] } else { &closing["error"]["details"] };
            let found = [&counts["decided"], &counts["unseen"]].map(Value::clone);
            let expected = if governed { [json!(4), json!(0)] } else { [json!(0), json!(4)] };
            assert_eq!((ran.status, found), (if governed { 0 } else { 10 }, expected), "{host:?} {ran:?}");
        }
    }
}
