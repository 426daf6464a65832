//! A whole agent under `cp-exec agent`: each route by which it starts programs is inside of the sandbox.

use serde_json::{Value, json};

use super::agent::{ANY, Agent, Host, hosts};
use super::model::{Call, Turn};

/// The routes of a host: a name, and the calls that start a command by it. The command writes the name to a file of the
/// project and to one of the home.
fn routes(agent: &Agent) -> Vec<(&'static str, Turn)> {
    let work = &agent.place.work;
    let script = work.write(
        "mark",
        "echo \"$1\" >\"$(dirname \"$0\")/inside-$1\"\necho \"$1\" >\"$(dirname \"$0\")/../user/outside-$1\"\n",
    );
    let script = script.display().to_string();
    let shell = |route: &str| vec![agent.host.shell(&format!("sh {script} {route}"))];
    let mut routes =
        vec![
            ("shell", shell("shell")),
            (
                "python",
                vec![agent.host.shell(&format!(
                    "python3 -c 'import subprocess; subprocess.run([\"sh\", \"{script}\", \"python\"])'"
                ))],
            ),
        ];
    if agent.host == Host::Claude {
        work.write(
            ".claude/skills/probe/SKILL.md",
            format!("---\nname: probe\ndescription: a probe\n---\n!`sh {script} skill`\n"),
        );
        let monitor = json!({"command": format!("sh {script} monitor"), "description": "a test", "timeout_ms": 5000, "persistent": false});
        routes.push(("monitor", vec![Call { tool: "Monitor", input: monitor }]));
        routes.push(("skill", vec![Call { tool: "Skill", input: json!({"skill": "probe"}) }]));
    }
    let server = json!({"mcpServers": {"marker": {"command": "sh", "args": [script, "server"]}}});
    work.write("servers.json", server.to_string());
    routes.push(("server", Vec::new()));
    routes
}

/// The arguments with which a host starts the server of [`routes`].
fn server(agent: &Agent) -> Vec<String> {
    let work = agent.place.work.display();
    match agent.host {
        Host::Claude => vec!["--mcp-config".to_owned(), format!("{work}/servers.json")],
        Host::Codex => {
            vec!["-c".to_owned(), format!("mcp_servers.marker={{command=\"sh\",args=[\"{work}/mark\",\"server\"]}}")]
        }
        Host::Gemini | Host::Opencode | Host::Copilot => Vec::new(),
    }
}

/// The sandbox around an agent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sandbox {
    None,
    Agent,
    /// The agent's sandbox, and our hook in the configuration of the project.
    AgentAndHook,
}

#[test]
fn every_route_of_agent_is_inside_of_sandbox() {
    for host in hosts() {
        for sandbox in [Sandbox::None, Sandbox::Agent, Sandbox::AgentAndHook] {
            let agent = Agent::new(host);
            agent.place.policy(ANY);
            let routes = routes(&agent);
            if sandbox == Sandbox::AgentAndHook {
                if !matches!(host, Host::Claude | Host::Codex) {
                    continue;
                }
                agent.govern_project(ANY);
            }
            let more = server(&agent);
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let turns = routes.iter().map(|(_, turn)| turn.clone()).filter(|turn| !turn.is_empty()).collect();
            let (outcome, model) = match sandbox {
                Sandbox::None => agent.run_as_it_is(turns, &more),
                Sandbox::Agent | Sandbox::AgentAndHook => agent.run_contained(turns, &more),
            };
            let shown = format!("{host:?} {sandbox:?}: {outcome:?}\n{model:?}");
            assert_eq!(outcome.status, 0, "{shown}");
            // Codex leaves out hooks of a project that its user has not trusted.
            if sandbox == Sandbox::AgentAndHook && host == Host::Claude {
                let entries = agent.place.home.records("ledger/cp-exec.jsonl");
                let intents = entries.into_iter().filter(|entry| entry["event"] == "host.intent");
                let decided: Vec<Value> = intents.map(|entry| entry["data"]["tool"].clone()).collect();
                assert_eq!(decided, ["Bash", "Bash", "Monitor", "Skill"], "{shown}");
            }
            for (route, _) in &routes {
                if *route == "server" && more.is_empty() {
                    continue;
                }
                // It ran, and the home was out of its reach unless it ran outside.
                assert!(agent.place.work.join(format!("inside-{route}")).exists(), "{route} {shown}");
                let is_outside = agent.place.user.join(format!("outside-{route}")).exists();
                assert_eq!(is_outside, sandbox == Sandbox::None, "{route} {shown}");
            }
        }
    }
}
