//! Under our hook: what the policy allows runs in our sandbox, and nothing else runs.

use serde_json::Value;

use super::agent::{Agent, hooked};
use super::model::Turn;

const POLICY: &str = "[exec]
allowed_commands = [\"printenv\", \"touch\"]
confirm = \"owner\"
[[exec.rule]]
command = \"touch\"
decision = \"confirm\"
[paths]
read = [\".\"]
write = [\".\"]
forbidden = [\"secret/**\"]
";

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
                agent.govern(POLICY);
            }
            let commands = ["printenv HOME", "mv precious gone"].map(|command| vec![host.shell(command)]);
            let (outcome, model) = agent.run([commands.to_vec(), files(&agent)].concat());
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
            let intents = entries(&agent, "exec.intent");
            let [intent, second] = &intents[..] else { panic!("{shown}") };
            assert_eq!(
                (&intent["data"]["line"], &second["data"]["line"]),
                (&"printenv HOME".into(), &"mv precious gone".into())
            );
            let refused = entries(&agent, "exec.step").into_iter().filter(|step| step["data"]["decision"] == "deny");
            assert_eq!(
                refused.map(|step| step["data"]["argv_as_asked"][0].clone()).collect::<Vec<_>>(),
                ["mv"],
                "{shown}"
            );
            let asked = &entries(&agent, "host.intent")[0]["data"];
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
        agent.govern(POLICY);
        let call = || vec![host.shell("touch made")];
        let (outcome, model) = agent.run(vec![call()]);
        let told = model.results().pop().unwrap_or_else(|| panic!("{host:?}: {outcome:?}\n{model:?}"));
        let (_, rest) = told.split_once(" approve ").unwrap_or_else(|| panic!("{host:?}: {told}"));
        let id: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
        let made = || std::fs::remove_file(agent.place.work.join("made")).is_ok();
        assert!(!made(), "{host:?}: {told}");

        approve(&agent, &id);
        let (outcome, model) = agent.resume(vec![call()]);
        assert!(made(), "{host:?}: {outcome:?}\n{model:?}");
        let (_, model) = agent.resume(vec![call()]);
        assert!(!made() && model.results().pop().unwrap().contains(" approve "), "{host:?}: it was for once");
        assert_eq!(entries(&agent, "approval.spent").len(), 1, "{host:?}: one session, one start");
    }
}

#[test]
fn two_calls_of_one_answer_are_two_of_one_session() {
    for host in hooked() {
        let agent = Agent::new(host);
        agent.govern(POLICY);
        let (outcome, model) = agent.run(vec![vec![host.shell("printenv HOME"), host.shell("printenv LANG")]]);
        let results = model.results();
        assert_eq!(results.len(), 2, "{host:?}: {outcome:?}\n{model:?}");
        assert!(results[0].contains(HOME) && results[1].contains("C.UTF-8"), "{host:?}: {model:?}");
        let intents = entries(&agent, "exec.intent");
        let [first, second] = &intents[..] else { panic!("{host:?}: {intents:?}") };
        assert_ne!(first["data"]["host_call"], second["data"]["host_call"], "{host:?}");
    }
}

/// What its person does meanwhile.
fn approve(agent: &Agent, id: &str) {
    let mut terminal = agent.place.program("cp-exec").args(["approve", id]).terminal(80);
    terminal.wait_for("Allow it? y = yes, n = no: ");
    terminal.send("yes\r");
    terminal.end();
}
