//! The routes by which Claude Code runs commands, with our hook and without it, and the rules of its person.

use serde_json::{Value, json};

use super::agent::{ANY, Agent, Host, hooked};
use super::model::{Call, Turn};

fn is_missing() -> bool {
    !Host::Claude.is_there()
}

fn bash(command: &str) -> Turn {
    vec![Host::Claude.shell(command)]
}

/// A project with a skill that runs a command, and a server that does.
fn project(agent: &Agent, outside: impl Fn(&str) -> String) {
    let skill = format!("---\nname: probe\ndescription: probe\n---\nNow: !`{}`\n", outside("skill"));
    agent.place.work.write(".claude/skills/probe/SKILL.md", skill);
    agent.place.work.write("server.sh", format!("{}\n", outside("server")));
    let server = json!({"command": "sh", "args": [agent.place.work.join("server.sh").display().to_string()]});
    agent.place.work.write(".mcp.json", json!({"mcpServers": {"probe": server}}).to_string());
    let hook = json!([{"hooks": [{"type": "command", "command": outside("hook")}]}]);
    let settings = json!({"enableAllProjectMcpServers": true, "hooks": {"PostToolUse": hook}});
    agent.place.user.write(".claude/settings.json", settings.to_string());
}

/// Runs a command by each route. Returns the routes whose command had an effect outside of the sandbox.
fn open_routes(agent: &Agent) -> Vec<String> {
    let outside = agent.place.root.directory("outside");
    let command = |route: &str| format!("touch {}", outside.join(route).display());
    let monitor = json!({"command": command("monitor"), "description": "d", "timeout_ms": 5000});
    let background = json!({"command": command("background"), "description": "d", "run_in_background": true});
    let (outcome, model) = agent.run(vec![
        bash(&command("shell")),
        vec![Call { tool: "Bash", input: background }],
        vec![Call { tool: "Monitor", input: monitor }],
        vec![Call { tool: "Skill", input: json!({"skill": "probe"}) }],
        // The control: inside of the project the commands of the sandbox have an effect. It ends after the others.
        bash("sleep 1; touch inside"),
    ]);
    assert!(agent.place.work.join("inside").exists(), "{outcome:?}\n{model:?}");
    let mut open = outside.names();
    open.sort();
    open
}

#[test]
fn commands_of_each_route_run_in_the_sandbox() {
    if is_missing() {
        return;
    }
    for governed in [true, false] {
        let agent = Agent::new(Host::Claude);
        let outside = agent.place.root.join("outside");
        project(&agent, |route| format!("touch {}", outside.join(route).display()));
        if governed {
            agent.govern(ANY);
        }
        let all = ["background", "hook", "monitor", "server", "shell", "skill"];
        let expected: &[&str] = if governed { &[] } else { &all };
        assert_eq!(open_routes(&agent), expected, "governed: {governed}");
    }
}

#[test]
fn rules_of_the_person_hold_under_the_hook() {
    if is_missing() {
        return;
    }
    let rules = json!({"permissions": {"deny": ["Bash(touch denied)"], "ask": ["Bash(touch asked)"], "allow": ["Bash(touch:*)"]}});
    for (mode, asked_runs) in [("default", false), ("bypassPermissions", true)] {
        for governed in [true, false] {
            let agent = Agent::new(Host::Claude);
            agent.place.user.write(".claude/settings.json", rules.to_string());
            if governed {
                agent.govern(ANY);
            }
            let turns = ["denied", "asked", "free"].map(|name| bash(&format!("touch {name}")));
            // The last mode counts.
            let model = super::model::Model::asking(turns.to_vec());
            let outcome = agent.command(&model.url(), &["--permission-mode", mode]).run();
            let exists = |name: &str| agent.place.work.join(name).exists();
            let shown = format!("{mode} {governed}: {outcome:?}\n{model:?}");
            assert_eq!((exists("denied"), exists("free")), (false, true), "{shown}");
            assert!(asked_runs || !exists("asked"), "{shown}");
        }
    }
}

/// Denies `mkdir` by a rule of the host itself.
fn deny_mkdir(agent: &Agent) {
    let user = &agent.place.user;
    if agent.host == Host::Claude {
        user.write(".claude/settings.json", json!({"permissions": {"deny": ["Bash(mkdir:*)"]}}).to_string());
    } else {
        user.write(".codex/rules/own.rules", "prefix_rule(pattern=[\"mkdir\"], decision=\"forbidden\")\n");
    }
}

#[test]
fn rules_of_each_host_hold_under_the_hook() {
    for host in hooked() {
        for denied in [true, false] {
            let agent = Agent::new(host);
            if denied {
                deny_mkdir(&agent);
            }
            agent.govern(ANY);
            let lines = ["mkdir plain", "true && mkdir listed; true", "touch free"];
            let (outcome, model) = agent.run(lines.map(|line| vec![host.shell(line)]).to_vec());
            let made = ["plain", "listed", "free"].map(|name| agent.place.work.join(name).exists());
            assert_eq!(made, [!denied, !denied, true], "{host:?} {denied} {outcome:?}\n{model:?}");
            // Each line that ran was in the sandbox.
            let sessions = agent.place.sh("cat \"$CP_HOME\"/planes/*/sessions/*/ledger/exec.jsonl").records();
            let runs = sessions.iter().filter(|entry| entry["event"] == "exec.intent").count();
            assert_eq!(runs, if denied { 1 } else { 3 }, "{host:?} {denied} {outcome:?}\n{model:?}");
        }
    }
}

#[test]
fn shell_of_the_project_is_refused() {
    if is_missing() {
        return;
    }
    for replaced in [true, false] {
        let agent = Agent::new(Host::Claude);
        agent.govern(ANY);
        let other = agent.place.root.executable("other", "#!/bin/sh\nexec sh -c \"$1\"\n");
        if replaced {
            let settings: Value = json!({"env": {"CLAUDE_CODE_SHELL_PREFIX": other.display().to_string()}});
            agent.place.work.write(".claude/settings.json", settings.to_string());
        }
        let (outcome, model) = agent.run(vec![bash("touch made")]);
        assert_eq!(agent.place.work.join("made").exists(), !replaced, "{outcome:?}\n{model:?}");
    }
}
