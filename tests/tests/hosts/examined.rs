//! `cp-exec hook doctor` with the real agents: it tries each route, and finds an agent that does not call the hook.

use serde_json::{Value, json};

use super::agent::{ANY, Agent, Host, hooked};

/// The routes of Claude Code that are open without a hook.
const OPEN: [&str; 7] = ["background", "monitor", "file", "guarded_file", "skill", "mcp_tool", "shell"];

/// The exit status, and the status of each check of a route.
fn examine(agent: &Agent) -> (i32, Vec<(String, String)>, String) {
    let program = agent.host.program();
    let doctor = agent.place.program("cp-exec").args(["hook", "doctor", agent.host.name()]);
    let ran = doctor.also_on_path(program.parent().unwrap()).run();
    let closing = ran.closing();
    let data = if ran.status == 0 { &closing["data"] } else { &closing["error"]["details"] };
    let prefix = format!("{}_", agent.host.name());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = data["checks"].as_array().unwrap_or_else(|| panic!("{ran:?}")).iter();
    let routes = checks.filter_map(|check| {
        let route = check["check"].as_str().unwrap().strip_prefix(&prefix)?;
        (!["person", "project"].contains(&route)).then(|| (route.to_owned(), text(&check["status"])))
    });
    (ran.status, routes.collect(), format!("{ran:?}"))
}

#[test]
fn doctor_tries_each_route_and_finds_host_that_does_not_call_hook() {
    for host in hooked() {
        let agent = Agent::new(host);
        agent.govern(ANY);
        let (status, routes, shown) = examine(&agent);
        // Codex leaves out a hook that its user has not trusted. It has no tool of the unknown name.
        let expected = |name: &str| if host == Host::Codex && name != "unknown_tool" { "fail" } else { "pass" };
        assert!(
            routes.len() > 4 && routes.iter().all(|(name, status)| status == expected(name)),
            "{host:?} {routes:?} {shown}"
        );
        assert_eq!(status, i32::from(host == Host::Codex), "{host:?} {shown}");
        if host == Host::Claude {
            let settings = json!({"disableAllHooks": true, "env": {"CLAUDE_CODE_SHELL_PREFIX": ""}});
            agent.place.work.write(".claude/settings.json", settings.to_string());
            let (status, routes, shown) = examine(&agent);
            let open: Vec<&str> =
                routes.iter().filter(|(_, status)| status == "fail").map(|(name, _)| name.as_str()).collect();
            assert_eq!((status, open), (1, OPEN.to_vec()), "{routes:?} {shown}");
            assert!(!agent.place.work.join(".perldb").exists(), "the file of the test stays");
        }
    }
}
