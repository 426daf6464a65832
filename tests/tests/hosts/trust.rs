//! Codex runs the hooks that its person has looked at, and passes over the others without a word.

use serde_json::{Value, json};

use super::agent::{Agent, Host};

/// What Codex calls each hook, and the hash by which it is trusted.
fn hooks(agent: &Agent) -> Vec<(String, String)> {
    let home = agent.place.user.join(".codex");
    let mut server = agent.place.program(Host::Codex.program()).arg("app-server").env("CODEX_HOME", home).start();
    let mut ask = |id: u8, method: &str, params: Value| -> Value {
        server.write(format!("{}\n", json!({"id": id, "method": method, "params": params})));
        loop {
            let answer = server.record();
            if answer["id"] == id {
                return answer;
            }
        }
    };
    ask(1, "initialize", json!({"clientInfo": {"name": "test", "title": "test", "version": "1"}}));
    let listed = ask(2, "hooks/list", json!({"cwds": [agent.place.work.display().to_string()]}));
    let hooks = listed["result"]["data"][0]["hooks"].as_array().unwrap().iter();
    let text = |hook: &Value, name: &str| hook[name].as_str().unwrap().to_owned();
    hooks.map(|hook| (text(hook, "key"), text(hook, "currentHash"))).collect()
}

#[test]
fn codex_asks_our_hook_only_once_its_person_trusts_it() {
    if !Host::Codex.is_there() {
        return;
    }
    let agent = Agent::new(Host::Codex);
    agent.govern("");
    let call = || vec![vec![Host::Codex.shell("touch made")]];
    let (outcome, model) = agent.run_as_it_is(call(), &[]);
    assert!(std::fs::remove_file(agent.place.work.join("made")).is_ok(), "it passes over it: {outcome:?}\n{model:?}");

    let trusted = hooks(&agent)
        .into_iter()
        .map(|(key, hash)| format!("[hooks.state.{}]\ntrusted_hash = \"{hash}\"\n", json!(key)));
    agent.place.user.write(".codex/config.toml", trusted.collect::<String>());
    let (outcome, model) = agent.run_as_it_is(call(), &[]);
    assert!(!agent.place.work.join("made").exists(), "{outcome:?}\n{model:?}");
    assert!(model.results()[0].contains("the policy allows no commands"), "{model:?}");
}
