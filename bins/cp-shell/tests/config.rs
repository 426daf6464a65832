//! `cp-shell config`, as a shell user meets it.
#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

use assert_cmd::Command;
use predicates::str::contains;
use serde_json::Value;

fn cp_shell(home: &std::path::Path) -> Command {
    let mut command = Command::cargo_bin("cp-shell").unwrap();
    command.env_clear().args(["--home", home.to_str().unwrap()]);
    command
}

fn answer(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_setting_is_listed_with_its_origin() {
    let home = tempfile::tempdir().unwrap();
    let all = answer(cp_shell(home.path()).arg("config"));
    let items = all["data"]["items"].as_array().unwrap();
    assert_eq!(all["data"]["count"], items.len());
    let tier = items.iter().find(|item| item["key"] == "tier").unwrap();
    assert_eq!((&tier["value"], &tier["origin"]), (&"ho1".into(), &"default".into()));
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_default() {
    let home = tempfile::tempdir().unwrap();
    let origin = |command: &mut Command| {
        let data = answer(command.args(["config", "get", "tier"]))["data"].clone();
        (data["value"].as_str().unwrap().to_owned(), data["origin"].as_str().unwrap().to_owned())
    };
    std::fs::create_dir(home.path().join("config")).unwrap();
    std::fs::write(home.path().join("config/cp.toml"), "tier = \"ho3\"\n").unwrap();
    assert_eq!(origin(&mut cp_shell(home.path())), ("ho3".into(), "file".into()));
    assert_eq!(origin(cp_shell(home.path()).env("CP_TIER", "ho2")), ("ho2".into(), "environment".into()));
}

#[test]
fn an_unknown_setting_is_not_found_and_the_nearest_is_named() {
    let home = tempfile::tempdir().unwrap();
    cp_shell(home.path()).args(["config", "get", "modl"]).assert().code(3).stdout(contains("did you mean `model`?"));
}

#[test]
fn a_broken_file_is_named_with_its_line_and_doctor_still_runs() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("config")).unwrap();
    std::fs::write(home.path().join("config/cp.toml"), "agent = \"a\"\ntierr = \"ho1\"\n").unwrap();
    let broken = cp_shell(home.path()).arg("config").assert().code(4);
    broken.stdout(contains("line 2")).stdout(contains("`tier`"));
    cp_shell(home.path()).arg("doctor").assert().code(0).stdout(contains("\"status\":\"fail\""));
}

#[test]
fn an_agent_and_its_members_are_looked_up() {
    let home = tempfile::tempdir().unwrap();
    cp_shell(home.path())
        .args(["config", "agent", "default", "soul"])
        .assert()
        .code(3)
        .stdout(contains("cp-shell init"));
    std::fs::create_dir(home.path().join("config")).unwrap();
    std::fs::write(home.path().join("config/agents.json"), r#"{"ada":{"soul":"agents/ada/soul.md","model":null}}"#)
        .unwrap();
    cp_shell(home.path())
        .args(["config", "agent", "ada", "soul", "--format", "text"])
        .assert()
        .code(0)
        .stdout("agents/ada/soul.md\n");
    cp_shell(home.path())
        .args(["config", "agent", "ada", "sol"])
        .assert()
        .code(3)
        .stdout(contains("did you mean `soul`?"));
    std::fs::write(home.path().join("config/agents.json"), "[1").unwrap();
    cp_shell(home.path()).args(["config", "agent", "ada", "soul"]).assert().code(4).stdout(contains("E_CONFIG"));
}
