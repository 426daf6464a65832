//! What a person must agree to: asked for, approved on a terminal, and then the same request runs, once.

use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who};

/// Runs `cp-exec approve ID` on a terminal, and types.
fn approve(exec: &Exec, id: &str, typed: &str) -> String {
    let mut terminal = exec.command(&["approve", id]).terminal(80);
    terminal.send(&format!("{typed}\r"));
    terminal.end();
    terminal.text()
}

fn confirmed_by_owner() -> Exec {
    let rule = "\n[[exec.rule]]\ncommand = \"echo\"\ndecision = \"confirm\"\n";
    Exec::with_policy(Who::Me, &format!("{}{rule}", POLICY.replace("intent =", "confirm = \"owner\"\nintent =")))
}

#[test]
fn what_a_person_approved_runs_once_when_it_is_asked_for_again() {
    let exec = confirmed_by_owner();
    let (asks, status) = exec.ask(&["--", "echo", "a"]);
    assert_eq!((status, asks["error"]["details"]["action"].as_str()), (9, Some("approve_command")), "{asks}");
    assert_eq!(asks["meta"]["notices"][0]["type"], "approvals_advisory", "{asks}");
    let id = asks["error"]["details"]["id"].as_str().unwrap();
    assert!(asks["error"]["details"]["resume"].as_str().unwrap().ends_with(&format!("approve {id}")));
    let said = approve(&exec, id, "no");
    assert!(said.contains("E_FORBIDDEN"), "{said}");
    assert_eq!(exec.ask(&["--", "echo", "a"]).1, 9);
    let said = approve(&exec, id, "yes");
    assert!(said.contains("confirm_token"), "{said}");
    assert_eq!(exec.ask(&["--", "echo", "b"]).1, 9, "an approval of one is none of another");
    let (done, status) = exec.ask(&["--", "echo", "a"]);
    assert_eq!((status, &done["data"]["stdout"]), (0, &json!("a\n")), "{done}");
    assert_eq!(exec.ask(&["--", "echo", "a"]).1, 9, "it was for once");
    let confirmed = &exec.entries("exec.intent")[0]["data"]["confirmed"];
    assert!(confirmed.as_str().unwrap().starts_with("hmac-sha256:"));
}

#[test]
fn a_call_that_a_person_must_approve_is_no_result_for_the_model() {
    let exec = confirmed_by_owner();
    let call = r#"{"ok":true,"schema_version":"1.0","type":"tool_call","data":{"id":"c1","name":"shell","input":{"argv":["echo","a"]}}}"#;
    let (answers, status) = exec.answers(&[], call);
    assert_eq!((status, &answers[0]["error"]["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{answers:?}");
    // The control: a plain refusal is one.
    let (answers, _) = exec.answers(&[], &call.replace("\"echo\"", "\"rm\""));
    assert_eq!((&answers[0]["type"], &answers[0]["data"]["is_error"]), (&json!("tool_result"), &json!(true)));
}

#[test]
fn a_tool_that_the_policy_wants_approved_waits_for_a_person() {
    let exec = Exec::with_policy(Who::Me, &format!("{POLICY}\n[tools]\nallow = [\"*\"]\napprove = [\"dep*\"]\n"));
    for name in ["deploy", "look"] {
        exec.executable(&format!("tools/{name}"), "#!/bin/sh\necho \"$0 ran\" | sed 's,.*/,,'\n");
    }
    let tools = exec.work.join("tools").display().to_string();
    let call = |id: &str, name: &str, x: u8| {
        json!({"ok": true, "schema_version": "1.0", "type": "tool_call", "data": {"id": id, "name": name, "input": {"x": x}}})
            .to_string()
    };
    let ask = |args: &[&str], call: &str| -> Value {
        exec.answers(&[&["--tools", &tools], args].concat(), call).0[0].clone()
    };
    assert_eq!(ask(&[], &call("c1", "look", 1))["data"]["content"], "look ran\n");
    let asks = ask(&[], &call("c1", "deploy", 1));
    assert_eq!(asks["error"]["code"], "E_HUMAN_REQUIRED", "{asks}");
    assert_eq!(asks["error"]["details"]["rule"], "tools.approve");
    // It may still say what it is.
    let describe = json!({"tool": "deploy", "operation": "describe", "arguments": {}}).to_string();
    assert_eq!(ask(&[], &describe)["type"], "exec_result");
    approve(&exec, asks["error"]["details"]["id"].as_str().unwrap(), "yes");
    assert_eq!(
        ask(&[], &call("c2", "deploy", 2))["error"]["code"],
        "E_HUMAN_REQUIRED",
        "other arguments, another word"
    );
    assert_eq!(ask(&[], &call("c1", "deploy", 1))["data"]["content"], "deploy ran\n");

    // A run has its approvals on its own ledger: whoever was asked there is not asked again.
    let run = exec.home.join("run.jsonl").display().to_string();
    let in_run = ["--ledger", &run, "--run", "RUN-1"];
    assert_eq!(ask(&in_run, &call("c3", "deploy", 3))["error"]["code"], "E_HUMAN_REQUIRED");
    let path = std::path::Path::new(&run);
    let mut ledger = cp_ledger::Ledger::open(path, cp_ledger::Sync::None).unwrap();
    ledger.append(cp_ledger::Entry::new("approved").with("call", "c3")).unwrap();
    drop(ledger);
    assert_eq!(ask(&in_run, &call("c3", "deploy", 3))["data"]["content"], "deploy ran\n");
    assert_eq!(ask(&in_run, &call("c4", "deploy", 3))["error"]["code"], "E_HUMAN_REQUIRED");
}

#[test]
fn what_waits_for_a_person_names_the_variables_and_holds_no_value() {
    let exec = confirmed_by_owner();
    let ask = |value: &str| exec.ask(&["--env", &format!("RUST_LOG={value}"), "--", "echo", "a"]);
    let (asks, _) = ask("hunter2-s3cret");
    let id = asks["error"]["details"]["id"].as_str().unwrap().to_owned();
    let said = approve(&exec, &id, "no");
    assert!(said.contains("with RUST_LOG set"), "{said}");
    let listed = exec.ask(&["approve"]).0.to_string();
    assert!(listed.contains("RUST_LOG") && listed.contains(&id), "{listed}");
    let said = said + &approve(&exec, &id, "yes") + &listed;
    assert!(!said.contains("hunter2"), "{said}");
    assert_ne!(ask("another").1, 0, "an approval of one value is none of another");
    for entry in std::fs::read_dir(exec.home.join("state/approvals")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
    }
    let (done, status) = ask("hunter2-s3cret");
    assert_eq!((status, &done["data"]["stdout"]), (0, &json!("a\n")), "{done}");
    // A refused request is on the ledger without the values too, and with the names.
    let request = json!({"tool": "shell", "arguments": {"argv": ["rm", "x"], "env": {"RUST_LOG": "hunter2-s3cret"}}});
    exec.answers(&[], &request.to_string());
    let refused = exec.entries("exec.refused").pop().unwrap().to_string();
    assert!(refused.contains("RUST_LOG") && refused.contains("\"rm\""), "{refused}");
    assert!(!std::fs::read_to_string(exec.ledger()).unwrap().contains("hunter2"));
}
