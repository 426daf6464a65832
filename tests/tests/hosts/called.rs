//! Our programs as tools of the agents: each of them starts `cp-mcp serve` as its configuration says, and calls
//! `cp_run`.

use serde_json::{Value, json};

use super::agent::{Agent, Host, ONE, hosts};
use super::model::Call;

/// What the host calls our tool.
fn tool(host: Host) -> &'static str {
    match host {
        Host::Claude | Host::Codex => "mcp__cp__cp_run",
        Host::Gemini => "mcp_cp_cp_run",
        Host::Opencode => "cp_cp_run",
        Host::Copilot => "cp-cp_run",
    }
}

/// A call of our tool.
fn run(host: Host, words: &[&str]) -> Call {
    Call { tool: tool(host), input: json!({"argv": words}) }
}

/// Puts our server into its configuration, by hand.
fn configure(agent: &Agent) {
    let (user, home) = (&agent.place.user, agent.place.home.display().to_string());
    let ours = cp_testkit::program("cp-mcp").display().to_string();
    let env = json!({"CP_HOME": home});
    let entry = json!({"command": ours, "args": ["serve"], "env": env});
    match agent.host {
        Host::Claude => {
            user.write(".claude.json", json!({"mcpServers": {"cp": entry}}).to_string());
            // It tells the model of the tools at once.
            user.write(".claude/settings.json", json!({"env": {"ENABLE_TOOL_SEARCH": "false"}}).to_string());
        }
        Host::Codex => {
            let lines = format!(
                "[mcp_servers.cp]\ncommand = {}\nargs = [\"serve\"]\nenv = {{CP_HOME = {}}}\ndefault_tools_approval_mode = \"approve\"\n",
                json!(ours),
                json!(home)
            );
            user.write(".codex/config.toml", lines);
        }
        Host::Gemini => {
            user.write(".gemini/settings.json", json!({"mcpServers": {"cp": entry}}).to_string());
        }
        Host::Opencode => {
            let entry = json!({"type": "local", "command": [ours, "serve"], "environment": env, "enabled": true});
            user.write(".config/opencode/opencode.json", json!({"mcp": {"cp": entry}}).to_string());
        }
        Host::Copilot => {
            let mut entry = entry;
            entry["type"] = "local".into();
            entry["tools"] = json!(["*"]);
            user.write(".copilot/mcp-config.json", json!({"mcpServers": {"cp": entry}}).to_string());
        }
    }
}

/// Entries of an event in all ledgers.
fn entries(agent: &Agent, event: &str) -> Vec<Value> {
    let ledgers = agent.place.sh("find \"$CP_HOME\" -path '*/ledger/*.jsonl' -exec cat {} +").records();
    ledgers.into_iter().filter(|entry| entry["event"] == event).collect()
}

#[test]
fn a_host_calls_cp_run_and_is_refused_what_the_policy_does_not_allow() {
    for host in hosts() {
        for is_configured in [true, false] {
            let agent = Agent::new(host);
            agent.place.policy(ONE);
            agent.place.work.write("precious", "text");
            if is_configured {
                configure(&agent);
            }
            let calls = [&["printenv", "HOME"][..], &["mv", "precious", "gone"]];
            let (outcome, model) = agent.run(calls.map(|words| vec![run(host, words)]).to_vec());
            let results = model.results();
            let shown = format!("{host:?} {is_configured}: {outcome:?}\n{model:?}");
            assert!(agent.place.work.join("precious").exists(), "{shown}");
            let ran = results.iter().any(|result| result.contains("/tmp/home"));
            let refused = results.iter().any(|result| result.contains("`mv` is not in allowed_commands"));
            assert_eq!((ran, refused), (is_configured, is_configured), "{shown}");
            let sessions = entries(&agent, "mcp.session");
            if is_configured {
                let name = sessions[0]["data"].to_string().to_lowercase();
                let expected = if host == Host::Copilot { "copilot" } else { host.name() };
                assert!(name.contains(expected), "{host:?}: {name}");
                assert_eq!(entries(&agent, "exec.intent").len(), 1, "{shown}");
                agent.place.program("cp-log").arg("verify").run().success();
            } else {
                assert!(sessions.is_empty(), "{shown}");
            }
        }
    }
}

#[test]
fn what_its_person_approved_runs_when_the_host_asks_again() {
    for host in hosts() {
        let agent = Agent::new(host);
        agent.place.policy(ONE);
        configure(&agent);
        agent.runs_once_if_approved(&run(host, &["touch", "made"]));
    }
}
