//! Under our hook: what the policy allows runs in our sandbox, and nothing else runs.

use serde_json::Value;

use super::agent::{Agent, ONE, hooked};
use super::model::Turn;

/// Entries of an event in the ledger of the only session.
fn entries(agent: &Agent, event: &str) -> Vec<Value> {
    let sessions = agent.place.home.at("planes/ho1/sessions");
    let [session] = &sessions.names()[..] else { panic!("{:?}: {:?}", agent.host, sessions.names()) };
    let mut all = sessions.records(format!("{session}/ledger/exec.jsonl"));
    all.retain(|entry| entry["event"] == event);
    all
}

/// Text that the model asks the agent to write with the agent's own tool.
fn files(agent: &Agent) -> Vec<Turn> {
    let path = |name: &str| agent.place.work.join(name).display().to_string();
    ["open", "secret/hidden"].map(|name| vec![agent.host.write(&path(name), "text")]).to_vec()
}

/// Where the sandbox has the home of a command.
const HOME: &str = "/tmp/home";

#[test]
fn an_allowed_command_runs_in_our_sandbox_and_a_refused_one_does_not_run_and_the_model_reads_why() {
    for host in hooked() {
        for governed in [true, false] {
            let agent = Agent::new(host);
            agent.place.work.write("precious/thing", "text");
            agent.place.work.directory("secret");
            if governed {
                agent.govern(ONE);
            }
            // Two calls of one answer, of which each is recorded.
            let commands = ["printenv HOME", "mv precious gone"].map(|command| host.shell(command));
            let (outcome, model) = agent.run([vec![commands.to_vec()], files(&agent)].concat());
            let results = model.results();
            let shown = format!("{host:?} {governed}: {outcome:?}\n{model:?}");
            assert_eq!(results.len(), 4, "{shown}");
            let exists = |name: &str| agent.place.work.join(name).exists();
            assert_eq!(
                (exists("precious"), exists("open"), exists("secret/hidden")),
                (governed, true, !governed),
                "{shown}"
            );
            let own = agent.place.user.display().to_string();
            assert!(results[0].contains(if governed { HOME } else { &own }), "{shown}");
            if !governed {
                continue;
            }
            assert!(results[1].contains("`mv` is not in allowed_commands"), "{shown}");
            assert!(results[3].contains("Capability denied"), "{shown}");
            // A host may start the calls of one answer in any order.
            let mut intents = entries(&agent, "exec.intent");
            intents.sort_by_key(|intent| intent["data"]["line"].to_string());
            let [refused_call, intent] = &intents[..] else { panic!("{shown}") };
            let lines = [refused_call, intent].map(|intent| intent["data"]["line"].as_str());
            assert_eq!(lines, [Some("mv precious gone"), Some("printenv HOME")], "{shown}");
            assert_ne!(intent["data"]["host_call"], refused_call["data"]["host_call"], "{shown}");
            let refused = entries(&agent, "exec.step").into_iter().filter(|step| step["data"]["decision"] == "deny");
            assert_eq!(
                refused.map(|step| step["data"]["argv_as_asked"][0].clone()).collect::<Vec<_>>(),
                ["mv"],
                "{shown}"
            );
            let asked = entries(&agent, "host.intent");
            let is_same = |asked: &&Value| asked["data"]["host_call"] == intent["data"]["host_call"];
            let asked = &asked.iter().find(is_same).unwrap_or_else(|| panic!("{shown}"))["data"];
            for member in ["host", "host_session", "host_call"] {
                assert_eq!(intent["data"][member], asked[member], "{member}: {intent}");
            }
            assert_eq!(asked["host"], host.name());
            assert!(asked["host_call"].as_str().unwrap().starts_with("call_1_0"), "{asked}");
            assert_eq!(entries(&agent, "exec.refused").len(), 1, "{shown}");
            agent.place.program("cp-log").arg("verify").run().success();
        }
    }
}

#[test]
fn what_its_person_approved_runs_once_in_the_session_that_is_resumed() {
    for host in hooked() {
        let agent = Agent::new(host);
        agent.govern(ONE);
        agent.runs_once_if_approved(&host.shell("touch made"));
        assert_eq!(entries(&agent, "approval.spent").len(), 1, "{host:?}: one session, one start");
    }
}
