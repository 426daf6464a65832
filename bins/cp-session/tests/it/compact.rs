use std::os::unix::fs::PermissionsExt as _;

use crate::house::{House, message};

/// Puts the program beside a stand-in for cp-llm that prints `line`.
fn beside(house: &House, line: &str) -> assert_cmd::Command {
    let bin = house.root.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let program = bin.join("cp-session");
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_cp-session"), &program).unwrap();
    }
    let llm = bin.join("cp-llm");
    std::fs::write(&llm, format!("#!/bin/sh\ncat > asked\ncat <<'END'\n{line}\nEND\n")).unwrap();
    std::fs::set_permissions(&llm, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = assert_cmd::Command::new(program);
    command.env_clear().env("CP_HOME", house.root.path()).env("PATH", "/usr/bin:/bin").current_dir(house.root.path());
    command
}

fn talked(house: &House) -> String {
    let session = house.start();
    for (q, a) in [("q1", "a1"), ("q2", "a2"), ("q3", "a3")] {
        house.feed(&["tee", &session], &message(q, a));
    }
    session
}

#[test]
fn the_summary_stands_for_the_older_turns_and_they_stay_on_disk() {
    let house = House::new();
    let session = talked(&house);
    let mut command = beside(&house, message("x", "they said q1 and q2").trim_end());
    let output = command.args(["compact", &session, "--keep", "2"]).output().unwrap();
    let data: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&data["data"]["turns"], &data["data"]["summary"]),
        (&4.into(), &"they said q1 and q2".into()),
        "{data}"
    );
    let asked = std::fs::read_to_string(house.root.path().join("asked")).unwrap();
    assert!(asked.contains("user: q1") && asked.contains("assistant: a2") && !asked.contains("q3"));
    let text = house.run(&["load", &session, "--format", "text"]).stdout;
    assert_eq!(
        text,
        "user: Summarise our conversation so far.\nassistant: they said q1 and q2\nuser: q3\nassistant: a3\n"
    );
    assert_eq!(house.count(&session), 6);
    house.feed(&["tee", &session], &message("q4", "a4"));
    assert_eq!(house.run(&["load", &session]).data()["count"], 6);
    assert_eq!(house.run(&["load", &session, "--last", "3"]).data()["has_more"], true);
}

#[test]
fn a_failing_model_leaves_the_session_as_it_was() {
    let house = House::new();
    let session = talked(&house);
    let line = r#"{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_RATE_LIMITED","message":"slow down","details":{},"retryable":true},"meta":{"duration_ms":1}}"#;
    let output = beside(&house, line).args(["compact", &session, "--keep", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(house.run(&["load", &session]).data()["count"], 6);
    let output = beside(&house, line).args(["compact", &session, "--keep", "10"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(house.run(&["compact", &session, "--keep", "2", "--dry-run"]).data()["turns"], 4);
}
