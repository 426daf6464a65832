//! Claude Code and Codex as backends of cp-llm, under a scripted model: each outcome has its exit status.

use std::time::Duration;

use cp_testkit::server::{self, Reply};
use cp_testkit::{Outcome, Program, Server, repository};
use serde_json::json;

use super::agent::{Agent, Host, hooked};
use super::model::Model;

/// Asks the agent through cp-llm, with the server at `url` as its provider.
fn ask(agent: &Agent, url: &str, more: &[&str]) -> Outcome {
    let program = agent.place.program("cp-llm").args(["--backend", agent.host.name(), "--retries", "0"]);
    provided(agent, url, program.args(["--timeout", "100"]).args(more).arg("go")).run()
}

/// A program with the agent as a backend, whose provider is the server at `url`.
fn provided(agent: &Agent, url: &str, program: Program) -> Program {
    let place = &agent.place;
    place.root.directory("agents");
    let link = place.root.join("agents").join(agent.host.name());
    if !link.exists() {
        std::os::unix::fs::symlink(agent.host.program(), link).unwrap();
    }
    let provider = format!(
        "{{name=\"local\",base_url=\"{url}/v1\",wire_api=\"responses\",request_max_retries=0,stream_max_retries=0}}"
    );
    let local = format!("model_providers.local={provider}");
    let config = json!(["-c", "model_provider=\"local\"", "-c", local]);
    place.home.write("config/cp.toml", format!("[endpoints.codex]\nmodel = \"gpt-5.5\"\narguments = {config}\n"));
    program
        .with_programs()
        .also_on_path(repository().join("scripts/backends"))
        .also_on_path(place.root.join("agents"))
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_API_KEY", "none")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("CLAUDE_CODE_MAX_RETRIES", "0")
        .env("CODEX_HOME", place.user.directory(".codex"))
        .env("TMPDIR", place.root.directory("temporary"))
        .limit(Duration::from_mins(3))
}

#[test]
fn agent_answers_and_tool_calls_are_records() {
    for host in hooked() {
        let agent = Agent::new(host);
        let model = Model::asking(vec![]);
        let message = ask(&agent, &model.url(), &[]).success().only()["data"].clone();
        assert_eq!((&message["content"], &message["backend"]), (&json!("done"), &json!(host.name())));
        assert!(!message["id"].as_str().unwrap().is_empty(), "{message}");
        assert!(message["usage"]["output_tokens"].as_u64() > Some(0), "{message}");

        // A tool that needs no approval, so that the answer is complete.
        let model = Model::asking(vec![vec![host.shell("echo hello")]]);
        let message = ask(&agent, &model.url(), &[]).success().only()["data"].clone();
        assert_eq!((&message["blocks"][0]["type"], &message["content"]), (&json!("server_tool_use"), &json!("done")));
        assert!(model.results().join("").contains("hello"), "{model:?}");
    }
}

#[test]
fn agent_that_a_provider_rejects_has_the_code_of_the_rejection() {
    for host in hooked() {
        for (status, kind, exit, code) in
            [(429, "rate_limit_error", 7, "E_RATE_LIMITED"), (401, "authentication_error", 4, "E_AUTH")]
        {
            let reply = move |_: &server::Request| -> Reply {
                server::json(status, &json!({"type": "error", "error": {"type": kind, "message": "no"}}))
            };
            let ran = ask(&Agent::new(host), &Server::replying(reply).url(), &[]);
            assert_eq!(
                (ran.status, &ran.first_error()["code"]),
                (exit, &json!(code)),
                "{}: {}",
                host.name(),
                ran.stdout
            );
        }
    }
}

#[test]
fn claude_that_needs_approval_is_a_question_for_a_person() {
    if !hooked().any(|host| host == Host::Claude) {
        return;
    }
    let agent = Agent::new(Host::Claude);
    let model = Model::asking(vec![vec![Host::Claude.write("/outside", "x")]]);
    let ran = ask(&agent, &model.url(), &[]);
    assert_eq!((ran.status, &ran.first_error()["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{}", ran.stdout);
    assert_eq!(ran.first_error()["details"]["denied"], json!(["Write"]));
}
