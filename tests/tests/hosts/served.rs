//! With our server in the configuration of the project, as `claude mcp add` writes it: the model's calls come to our
//! tools and are on the record.

use cp_testkit::Place;
use serde_json::json;

use super::agent::{Agent, Host};
use super::model::Call;

/// Every line of every ledger in the home.
fn ledgers(place: &Place) -> String {
    place.sh("find \"$CP_HOME\" -name '*.jsonl' -exec cat {} +").stdout
}

#[test]
fn claude_calls_the_server_that_was_put_in_and_has_none_where_it_was_not() {
    if !Host::Claude.is_there() {
        return;
    }
    for is_installed in [true, false] {
        let agent = Agent::new(Host::Claude);
        let place = &agent.place;
        place.policy("[exec]\nallowed_commands = []\n[paths]\nread = [\".\"]\n");
        place.work.write("notes/meeting.md", "text");
        // The person allows the servers of the project, and the first request lists their tools.
        let settings = json!({"enabledMcpjsonServers": ["cp"], "env": {"ENABLE_TOOL_SEARCH": "false"}});
        place.user.write(".claude/settings.json", settings.to_string());
        for name in ["cp-mcp", "cp-exec", "cp-session", "cp-log"] {
            place.install(name);
        }
        if is_installed {
            let server = json!({"type": "stdio", "command": place.root.join("bin/cp-mcp"), "args": ["serve"]});
            place.work.write(".mcp.json", json!({"mcpServers": {"cp": server}}).to_string());
        }
        let call = Call { tool: "mcp__cp__cp_read", input: json!({"path": "notes"}) };
        let (outcome, model) = agent.run(vec![vec![call]]);
        let results = model.results();
        let shown = format!("{is_installed}: {outcome:?}\n{model:?}");
        assert_eq!(outcome.status, 0, "{shown}");
        assert_eq!(results.iter().any(|result| result.contains("meeting.md")), is_installed, "{shown}");
        let recorded = ledgers(place);
        let is_recorded = recorded.contains("\"event\":\"mcp.call\"") && recorded.contains("claude-code");
        assert_eq!(is_recorded, is_installed, "{shown}\n{recorded}");
    }
}
