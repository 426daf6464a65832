//! `cp-shell config` on the command line.

use cp_testkit::{Place, Program};
use predicates::str::contains;

#[test]
fn environment_overrides_file_and_default() {
    let place = Place::of("cp-shell");
    let origin = |command: Program| {
        let data = command.args(["config", "get", "tier"]).run().data();
        (data["value"].as_str().unwrap().to_owned(), data["origin"].as_str().unwrap().to_owned())
    };
    place.home.write("config/cp.toml", "tier = \"ho3\"\n");
    assert_eq!(origin(place.subject()), ("ho3".into(), "file".into()));
    assert_eq!(origin(place.subject().env("CP_TIER", "ho2")), ("ho2".into(), "environment".into()));
}

#[test]
fn invalid_file_is_named_and_doctor_runs() {
    let place = Place::of("cp-shell");
    place.home.write("config/cp.toml", "agent = \"a\"\ntierr = \"ho1\"\n");
    let broken = place.run(&["config"]).assert().code(4);
    broken.stdout(contains("line 2")).stdout(contains("`tier`"));
    place.run(&["doctor"]).assert().code(1).stdout(contains("\"status\":\"fail\""));
}

#[test]
fn doctor_checks_backend() {
    let place = Place::of("cp-shell");
    let backend = |backend: &str| {
        let found = place.subject().arg("doctor").env("CP_BACKEND", backend).with_programs().run().data();
        found["checks"].as_array().unwrap().iter().find(|check| check["check"] == "backend").cloned().unwrap()
    };
    assert_eq!(backend("stub")["status"], "pass");
    let missing = backend("");
    assert_eq!((&missing["status"], &missing["message"]), (&"warn".into(), &"no backend is configured".into()));
    assert!(missing["fix"].as_str().unwrap().contains("ANTHROPIC_API_KEY"), "{missing}");
}

#[test]
fn config_agent_prints_members() {
    let place = Place::of("cp-shell");
    place.run(&["config", "agent", "default", "soul"]).assert().code(3).stdout(contains("cp-shell init"));
    place.home.write("config/agents.json", r#"{"ada":{"soul":"agents/ada/soul.md","model":null}}"#);
    place.run(&["config", "agent", "ada", "soul", "--format", "text"]).assert().code(0).stdout("agents/ada/soul.md\n");
    place.run(&["config", "agent", "ada", "sol"]).assert().code(3).stdout(contains("did you mean `soul`?"));
    place.home.write("config/agents.json", "[1");
    place.run(&["config", "agent", "ada", "soul"]).assert().code(4).stdout(contains("E_CONFIG"));
}
