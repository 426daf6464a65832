//! Inside the sandbox that an agent has of its own.

use std::time::Duration;

use cp_testkit::Outcome;
use serde_json::Value;

use super::agent::{Agent, Host};

const POLICY: &str = "[exec]\nallowed_commands = [\"printenv\"]\n";

/// Runs it as Codex runs commands, where the home may be written.
fn inside(agent: &Agent, arguments: &[&str]) -> Outcome {
    let codex = agent.place.user.directory(".codex");
    let home = agent.place.home.display();
    let profile = format!(
        "default_permissions = \"test\"\n[permissions.test]\nextends = \":workspace\"\n\
         [permissions.test.filesystem]\n\"{home}\" = \"write\"\n"
    );
    codex.write("config.toml", profile);
    let ours = agent.place.program("cp-exec").args(arguments).env("CODEX_HOME", &codex);
    let ours = ours.env("TMPDIR", agent.place.root.directory("temporary"));
    ours.under(Host::Codex.program(), ["sandbox", "--"]).limit(Duration::from_mins(1)).run()
}

#[test]
fn in_the_sandbox_of_codex_it_ends_and_uses_the_layers_that_are_left() {
    if !Host::Codex.is_there() {
        return;
    }
    let agent = Agent::new(Host::Codex);
    agent.place.policy(&format!("{POLICY}degraded = \"allow\"\n"));
    let command = ["--", "printenv", "HOME"];
    let control = agent.place.program("cp-exec").args(command).run().data();
    assert_eq!(control["stdout"], "/tmp/home\n");
    assert!(control["enforcement"].get("outer_sandbox").is_none(), "{control}");

    let ran = inside(&agent, &command).data();
    let enforcement = &ran["enforcement"];
    assert_eq!((&ran["return_code"], &enforcement["outer_sandbox"]), (&0.into(), &true.into()), "{ran}");
    assert_eq!((&enforcement["landlock"]["status"], &enforcement["seccomp"]), (&"full".into(), &true.into()), "{ran}");

    // A line needs more than one command does, whatever the policy says.
    let line = inside(&agent, &["-c", "printenv HOME"]);
    if enforcement["namespaces"].as_array().unwrap().iter().all(|had| had != "mount") {
        assert_eq!(line.failed(4, "E_FORBIDDEN")["details"]["layer"], "namespaces", "{line:?}");
    } else {
        assert_eq!(line.data()["stdout"], "/tmp/home\n");
    }

    // Root has no right to namespaces there, an ordinary user has.
    agent.place.policy(POLICY);
    let ran = inside(&agent, &command);
    let is_missing = |layer: &str| enforcement["namespaces"].as_array().unwrap().iter().all(|had: &Value| had != layer);
    if is_missing("pid") {
        let details = &ran.failed(4, "E_FORBIDDEN")["details"];
        assert_eq!((&details["rule"], &details["outer_sandbox"]), (&"require".into(), &true.into()), "{ran:?}");
        assert!(details["hint"].as_str().unwrap().contains("an outer sandbox is present"), "{details}");
    } else {
        assert_eq!(ran.data()["stdout"], "/tmp/home\n");
    }
}
