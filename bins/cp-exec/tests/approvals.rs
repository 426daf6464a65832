//! Approvals: a request is pending, approved on a terminal, and then runs once.

use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who, policy_with};

pub(crate) fn confirmed_by_owner() -> Exec {
    let rule = "\n[[exec.rule]]\ncommand = \"echo\"\ndecision = \"confirm\"\n";
    Exec::with_policy(Who::Me, &format!("{}{rule}", policy_with("confirm = \"owner\"")))
}

#[test]
fn approved_command_runs_once_on_repeat() {
    let exec = confirmed_by_owner();
    let (asks, status) = exec.ask(&["--", "echo", "a"]);
    assert_eq!((status, asks["error"]["details"]["action"].as_str()), (9, Some("approve_command")), "{asks}");
    assert_eq!(asks["meta"]["notices"][0]["type"], "approvals_advisory", "{asks}");
    let id = asks["error"]["details"]["id"].as_str().unwrap();
    assert!(asks["error"]["details"]["resume"].as_str().unwrap().ends_with(&format!("approve {id}")));
    let said = exec.approve(id, "no");
    assert!(said.contains("✗ not approved: ") && !said.contains("E_FORBIDDEN"), "the reason appears once: {said}");
    assert_eq!(exec.ask(&["--", "echo", "a"]).1, 9);
    let said = exec.approve(id, "yes");
    assert!(said.contains(&format!("{id}  echo a")), "{said}");
    assert_eq!(exec.ask(&["--", "echo", "b"]).1, 9, "an approval of one is none of another");
    let (done, status) = exec.ask(&["--", "echo", "a"]);
    assert_eq!((status, &done["data"]["stdout"]), (0, &json!("a\n")), "{done}");
    assert_eq!(exec.ask(&["--", "echo", "a"]).1, 9, "it was for once");
    let confirmed = &exec.entries("exec.intent")[0]["data"]["confirmed"];
    assert!(confirmed.as_str().unwrap().starts_with("hmac-sha256:"));
}

#[test]
fn call_awaiting_approval_returns_no_result_to_model() {
    let exec = confirmed_by_owner();
    let asks = exec.call(&[], "shell", &json!({"argv": ["echo", "a"]}));
    assert_eq!(asks["error"]["code"], "E_HUMAN_REQUIRED", "{asks}");
    // The control: a plain refusal is one.
    let refused = exec.call(&[], "shell", &json!({"argv": ["shred", "a"]}));
    assert_eq!((&refused["type"], &refused["data"]["is_error"]), (&json!("tool_result"), &json!(true)));
}

#[test]
fn tool_requiring_approval_waits_for_person() {
    let exec = Exec::with_policy(Who::Me, &format!("{POLICY}\n[tools]\nallow = [\"*\"]\napprove = [\"dep*\"]\n"));
    for name in ["deploy", "look"] {
        exec.executable(&format!("tools/{name}"), "#!/bin/sh\necho \"$0 ran\" | sed 's,.*/,,'\n");
    }
    let tools = exec.work.join("tools").display().to_string();
    let call = |name: &str, x: u8| exec.call(&["--tools", &tools], name, &json!({"x": x}));
    assert_eq!(call("look", 1)["data"]["content"], "look ran\n");
    let asks = call("deploy", 1);
    assert_eq!(asks["error"]["code"], "E_HUMAN_REQUIRED", "{asks}");
    assert_eq!(asks["error"]["details"]["rule"], "tools.approve");
    // It may still say what it is.
    let describe = json!({"tool": "deploy", "operation": "describe", "arguments": {}}).to_string();
    assert_eq!(exec.answers(&["--tools", &tools], &describe).0[0]["type"], "exec_result");
    exec.approve(asks["error"]["details"]["id"].as_str().unwrap(), "yes");
    assert_eq!(call("deploy", 2)["error"]["code"], "E_HUMAN_REQUIRED", "other arguments, another word");
    assert_eq!(call("deploy", 1)["data"]["content"], "deploy ran\n");

    assert_eq!(call("deploy", 1)["error"]["code"], "E_HUMAN_REQUIRED", "it was for once");
}

#[test]
fn pending_approval_is_one_record_with_all_bound_values() {
    let rule = "\n[[exec.rule]]\ncommand = \"echo\"\ndecision = \"confirm\"\n";
    let exec = Exec::with_policy(Who::Me, &format!("{POLICY}{rule}"));
    let ledger = exec.ledger().display().to_string();
    let call =
        |word: &str| exec.call(&["--run", "RUN-1", "--ledger", &ledger], "shell", &json!({"argv": ["echo", word]}));
    let asks = ["a", "b"].map(call);
    for asks in &asks {
        assert_eq!(asks["error"]["code"], "E_HUMAN_REQUIRED", "{asks}");
        let approval = &asks["error"]["details"]["approval"];
        assert_eq!((&approval["action"], &approval["level"]), (&json!("run"), &json!("agent")), "{approval}");
        assert_eq!((&approval["asked_by"]["run"], &approval["asked_by"]["call_id"]), (&json!("RUN-1"), &json!("c1")));
        assert!(approval["binds"]["program"].is_string(), "{approval}");
        assert_eq!(approval["scopes"], json!(["once", "run"]));
    }
    // Of those of one second any may come first.
    let sorted = |mut approvals: Vec<Value>| {
        approvals.sort_by_key(|approval| approval["id"].to_string());
        approvals
    };
    let listed = sorted(exec.ask(&["approve"]).0["data"]["items"].as_array().unwrap().clone());
    let recorded = exec.entries("approval.asked").iter().map(|entry| entry["data"]["approval"].clone()).collect();
    let asked = asks.clone().map(|asks| asks["error"]["details"]["approval"].clone()).to_vec();
    assert_eq!((&listed, &listed), (&sorted(asked), &sorted(recorded)));
    assert!(exec.entries("exec.refused").is_empty());

    exec.approve(asks[0]["error"]["details"]["id"].as_str().unwrap(), "y");
    assert_eq!(call("a")["data"]["content"], "a\n");
    let life: Vec<String> = exec.home.records(exec.ledger()).iter().map(|entry| entry["event"].to_string()).collect();
    let spent = life.iter().rposition(|event| event == "\"approval.spent\"").unwrap();
    assert_eq!(life[spent + 1], "\"exec.intent\"", "{life:?}");
    assert_eq!(exec.entries("exec.result").pop().unwrap()["data"]["call"], "c1");
    let spent = &exec.entries("approval.spent")[0]["data"];
    assert_eq!(
        (&spent["how"], &spent["receipt"]["hash"]),
        (&json!("terminal"), &exec.entries("approval.granted")[0]["hash"])
    );
}

#[test]
fn approval_scope_run_is_not_offered_for_deletion_or_publication() {
    let rules = ["rm", "git"].map(|name| format!("[[exec.rule]]\ncommand = \"{name}\"\ndecision = \"confirm\"\n"));
    let policy = POLICY;
    let exec = Exec::with_policy(Who::Me, &format!("{policy}{}", rules.concat()));
    for (argv, scopes) in [
        (json!(["git", "push"]), json!(["once"])),
        (json!(["rm", "x"]), json!(["once"])),
        (json!(["git", "--version"]), json!(["once", "run"])),
    ] {
        let asks = exec.call(&["--run", "RUN-1"], "shell", &json!({"argv": argv}));
        assert_eq!(asks["error"]["details"]["approval"]["scopes"], scopes, "{asks}");
    }
}

#[test]
fn pending_approval_has_variable_names_without_values() {
    let exec = confirmed_by_owner();
    let ask = |value: &str| exec.ask(&["--env", &format!("RUST_LOG={value}"), "--", "echo", "a"]);
    let (asks, _) = ask("hunter2-s3cret");
    let id = asks["error"]["details"]["id"].as_str().unwrap().to_owned();
    let said = exec.approve(&id, "no");
    assert!(said.contains("with RUST_LOG set"), "{said}");
    ask("hunter2-s3cret");
    let listed = exec.ask(&["approve"]).0.to_string();
    assert!(listed.contains("RUST_LOG") && listed.contains(&id), "{listed}");
    let said = said + &exec.approve(&id, "yes") + &listed;
    assert!(!said.contains("hunter2"), "{said}");
    assert_ne!(ask("another").1, 0, "an approval of one value is none of another");
    for entry in std::fs::read_dir(exec.home.join("state/approvals")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
    }
    let (done, status) = ask("hunter2-s3cret");
    assert_eq!((status, &done["data"]["stdout"]), (0, &json!("a\n")), "{done}");
    // A refused request is on the ledger without the values too, and with the names.
    let request = json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": ["shred", "x"], "env": {"RUST_LOG": "hunter2-s3cret"}}});
    exec.answers(&[], &request.to_string());
    let refused = exec.entries("exec.refused").pop().unwrap().to_string();
    assert!(refused.contains("RUST_LOG") && refused.contains("\"shred\""), "{refused}");
    assert!(!std::fs::read_to_string(exec.ledger()).unwrap().contains("hunter2"));
}

#[test]
fn approval_of_step_binds_variables_that_program_reads() {
    for changed in ["ECHO_DIR=x", "HOME=/x", "XDG_CONFIG_HOME=/x"] {
        let exec = confirmed_by_owner();
        let plain = "/bin/echo a";
        let moved = format!("{changed} {plain}");
        let (asks, _) = exec.ask(&["-c", plain]);
        let details = &asks["error"]["details"];
        assert_eq!(details["approval"]["shown"]["variables"], json!(null), "{asks}");
        exec.approve(details["id"].as_str().unwrap(), "yes");
        let (asks, status) = exec.ask(&["-c", &moved]);
        assert_eq!(status, 9, "{changed}: {asks}");
        let name = changed.split('=').next().unwrap();
        assert_eq!(asks["error"]["details"]["approval"]["shown"]["variables"], json!([name]), "{asks}");
        // The control: a variable that the program does not read changes nothing.
        let (done, status) = exec.ask(&["-c", &format!("OTHER=1 {plain}")]);
        assert_eq!((status, &done["data"]["stdout"]), (0, &json!("a\n")), "{changed}: {done}");
    }
}
