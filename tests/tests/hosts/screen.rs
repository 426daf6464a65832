//! A session of Claude Code at a terminal in the sandbox of `cp-exec agent`, as its user types it.

use std::time::Duration;

use serde_json::{Value, json};

use super::agent::{ANY, Agent, Host};
use super::model::Model;

#[test]
fn session_at_terminal_starts_asks_resizes_stops_and_ends() {
    if !Host::Claude.is_there() {
        return;
    }
    let agent = Agent::new(Host::Claude);
    let place = &agent.place;
    place.policy(ANY);
    place.user.write(".claude.json", "{\"hasCompletedOnboarding\":true,\"theme\":\"dark\"}");
    // The state, with the answer to the question about trust in the directory.
    place.program("cp-exec").args(["agent", "claude", "--", "true"]).run().success();
    let state = place.sh("echo \"$CP_HOME\"/hosts/claude").stdout;
    let file = format!("{}/.claude.json", state.trim());
    let mut settings: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    settings["projects"] = json!({place.work.display().to_string(): {"hasTrustDialogAccepted": true}});
    std::fs::write(&file, settings.to_string()).unwrap();
    let model = Model::asking(vec![vec![Host::Claude.shell("touch made; getent hosts refused.test")]]);
    let shell = place.program("bash").args(["--norc", "--noprofile", "-i"]).env("PS1", "outer> ").env("TERM", "xterm");
    let shell = shell.env("ANTHROPIC_BASE_URL", "http://model.test").env("ANTHROPIC_AUTH_TOKEN", "none");
    let mut terminal = shell.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").terminal(80);
    terminal.wait_for("outer> ");
    let start = format!(
        "{} agent --allow-host {} claude -- {} --permission-mode default\r",
        cp_testkit::program("cp-exec").display(),
        model.url().replace("http://", "model.test="),
        Host::Claude.program().display()
    );
    terminal.send(&start);
    terminal.wait_for("shortcuts");
    terminal.send("go");
    terminal.wait_for("go");
    terminal.send("\r");
    terminal.wait_for("proceed");
    // The question is shown before it reads keys.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!place.work.join("made").exists(), "{}", terminal.text());
    terminal.send("\r");
    terminal.wait_for("done");
    assert!(place.work.join("made").exists(), "{}", terminal.text());

    // It draws lines as long as the terminal is wide.
    let line = "─".repeat(100);
    assert!(!terminal.text().contains(&line), "{}", terminal.text());
    terminal.resize(100);
    terminal.wait_for(&line);
    terminal.send("\x1a");
    terminal.wait_for("Stopped");
    terminal.wait_for("outer> ");
    terminal.send("stty -a\r");
    assert!(terminal.wait_for("outer> ").contains(" icanon "), "the mode of the shell: {}", terminal.text());
    terminal.send("fg\r");
    terminal.wait_for("done");
    let refused = "connection to refused.test refused";
    assert!(!terminal.text().contains(refused), "a message on the screen of the agent: {}", terminal.text());
    terminal.send("/exit");
    terminal.wait_for("exit");
    terminal.send("\r");
    terminal.wait_for(refused);
    terminal.wait_for("cp-exec agent: ");
    terminal.wait_for("outer> ");
    terminal.send("exit\r");
    terminal.end();
}
