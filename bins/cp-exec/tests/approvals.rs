//! What a person must agree to: asked for, approved on a terminal, and then the same request runs, once.

use serde_json::{Value, json};

use crate::harness::{House, POLICY, Who};

/// Runs `cp-exec approve ID` on a terminal, and types.
fn approve(house: &House, id: &str, typed: &str) -> String {
    let command = house.command(&["approve", id]);
    let argv: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let script = format!(
        "import os, pty, sys\npid, fd = pty.fork()\nif pid == 0:\n    os.execv({0:?}, {argv:?})\nos.write(fd, b'{typed}\\n')\nout = b''\ntry:\n    while True:\n        part = os.read(fd, 4096)\n        if not part: break\n        out += part\nexcept OSError: pass\nos.waitpid(pid, 0)\nsys.stdout.write(out.decode())\n",
        argv[0]
    );
    let output = std::process::Command::new("python3").args(["-c", &script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn confirmed_by_owner() -> House {
    let rule = "\n[[exec.rule]]\ncommand = \"echo\"\ndecision = \"confirm\"\n";
    House::with_policy(Who::Me, &format!("{}{rule}", POLICY.replace("intent =", "confirm = \"owner\"\nintent =")))
}

#[test]
fn what_a_person_approved_runs_once_when_it_is_asked_for_again() {
    let house = confirmed_by_owner();
    let (asks, status) = house.run(&["--", "echo", "a"]);
    assert_eq!((status, asks["error"]["details"]["action"].as_str()), (9, Some("approve_command")), "{asks}");
    assert_eq!(asks["meta"]["notices"][0]["type"], "approvals_advisory", "{asks}");
    let id = asks["error"]["details"]["id"].as_str().unwrap();
    assert!(asks["error"]["details"]["resume"].as_str().unwrap().ends_with(&format!("approve {id}")));
    let said = approve(&house, id, "no");
    assert!(said.contains("E_FORBIDDEN"), "{said}");
    assert_eq!(house.run(&["--", "echo", "a"]).1, 9);
    let said = approve(&house, id, "yes");
    assert!(said.contains("confirm_token"), "{said}");
    assert_eq!(house.run(&["--", "echo", "b"]).1, 9, "an approval of one is none of another");
    let (done, status) = house.run(&["--", "echo", "a"]);
    assert_eq!((status, &done["data"]["stdout"]), (0, &json!("a\n")), "{done}");
    assert_eq!(house.run(&["--", "echo", "a"]).1, 9, "it was for once");
    let confirmed = &house.entries("exec.intent")[0]["data"]["confirmed"];
    assert!(confirmed.as_str().unwrap().starts_with("sha256:"));
}

#[test]
fn a_call_that_a_person_must_approve_is_no_result_for_the_model() {
    let house = confirmed_by_owner();
    let call = r#"{"ok":true,"schema_version":"1.0","type":"tool_call","data":{"id":"c1","name":"shell","input":{"argv":["echo","a"]}}}"#;
    let (answers, status) = house.feed(&[], call);
    assert_eq!((status, &answers[0]["error"]["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{answers:?}");
    // The control: a plain refusal is one.
    let (answers, _) = house.feed(&[], &call.replace("\"echo\"", "\"rm\""));
    assert_eq!((&answers[0]["type"], &answers[0]["data"]["is_error"]), (&json!("tool_result"), &json!(true)));
}

#[test]
fn a_tool_that_the_policy_wants_approved_waits_for_a_person() {
    let house = House::with_policy(Who::Me, &format!("{POLICY}\n[tools]\nallow = [\"*\"]\napprove = [\"dep*\"]\n"));
    for name in ["deploy", "look"] {
        house.executable(&format!("tools/{name}"), "#!/bin/sh\necho \"$0 ran\" | sed 's,.*/,,'\n");
    }
    let tools = house.project().join("tools").display().to_string();
    let call = |id: &str, name: &str, x: u8| {
        json!({"ok": true, "schema_version": "1.0", "type": "tool_call", "data": {"id": id, "name": name, "input": {"x": x}}})
            .to_string()
    };
    let ask =
        |args: &[&str], call: &str| -> Value { house.feed(&[&["--tools", &tools], args].concat(), call).0[0].clone() };
    assert_eq!(ask(&[], &call("c1", "look", 1))["data"]["content"], "look ran\n");
    let asks = ask(&[], &call("c1", "deploy", 1));
    assert_eq!(asks["error"]["code"], "E_HUMAN_REQUIRED", "{asks}");
    assert_eq!(asks["error"]["details"]["rule"], "tools.approve");
    // It may still say what it is.
    let describe = json!({"tool": "deploy", "operation": "describe", "arguments": {}}).to_string();
    assert_eq!(ask(&[], &describe)["type"], "exec_result");
    approve(&house, asks["error"]["details"]["id"].as_str().unwrap(), "yes");
    assert_eq!(
        ask(&[], &call("c2", "deploy", 2))["error"]["code"],
        "E_HUMAN_REQUIRED",
        "other arguments, another word"
    );
    assert_eq!(ask(&[], &call("c1", "deploy", 1))["data"]["content"], "deploy ran\n");

    // A run has its approvals on its own ledger: whoever was asked there is not asked again.
    let run = house.home().join("run.jsonl").display().to_string();
    let in_run = ["--ledger", &run, "--run", "RUN-1"];
    assert_eq!(ask(&in_run, &call("c3", "deploy", 3))["error"]["code"], "E_HUMAN_REQUIRED");
    let path = std::path::Path::new(&run);
    let mut ledger = cp_ledger::Ledger::open(path, cp_ledger::Sync::None).unwrap();
    ledger.append(cp_ledger::Entry::new("approved").with("call", "c3")).unwrap();
    drop(ledger);
    assert_eq!(ask(&in_run, &call("c3", "deploy", 3))["data"]["content"], "deploy ran\n");
    assert_eq!(ask(&in_run, &call("c4", "deploy", 3))["error"]["code"], "E_HUMAN_REQUIRED");
}
