//! Request ids and confirm tokens of commands: what was done is not done again, and no file holds a token.

use serde_json::{Value, json};

use crate::approvals::confirmed_by_owner;
use crate::exec::{Exec, POLICY, Who};

fn asking() -> Exec {
    let rule = "\n[[exec.rule]]\ncommand = \"echo\"\ndecision = \"confirm\"\n";
    Exec::with_policy(Who::Me, &format!("{POLICY}{rule}"))
}

#[track_caller]
fn refused(exec: &Exec, arguments: &[&str], reason: &str) {
    let (answer, status) = exec.ask(arguments);
    assert_eq!((status, &answer["error"]["details"]["reason"]), (6, &json!(reason)), "{answer}");
}

#[test]
fn request_id_runs_command_once_and_repeats_result() {
    let exec = Exec::new(Who::Me);
    let with = |id: &str, script: &str| exec.ask(&["--request-id", id, "--", "sh", "-c", script]);
    for (id, script, status) in [("a", "echo x; echo x >>f", 0), ("b", "echo y >&2; echo y >>f; exit 3", 1)] {
        let (first, left) = with(id, script);
        assert_eq!(left, status, "{first}");
        let (again, left) = with(id, script);
        assert_eq!((left, &again["data"], &again["error"]), (status, &first["data"], &first["error"]));
    }
    assert_eq!(std::fs::read_to_string(exec.work.join("f")).unwrap(), "x\ny\n");
    assert_eq!(exec.entries("exec.intent").len(), 2);
    refused(&exec, &["--request-id", "a", "--", "sh", "-c", "echo other"], "other_arguments");
    refused(&exec, &["--request-id", "a", "--env", "A=1", "--", "sh", "-c", "echo x; echo x >>f"], "other_arguments");
    // A refusal ran nothing: once the reason is gone, the same request goes through.
    assert_eq!(exec.ask(&["--request-id", "c", "--", "no-such", "g"]).1, 4);
    assert_eq!(exec.ask(&["--request-id", "c", "--", "true"]).1, 0);
    let raw =
        exec.command(&["--format", "raw", "--request-id", "b", "--", "sh", "-c", "echo y >&2; echo y >>f; exit 3"]);
    let raw = raw.run();
    assert_eq!((raw.status, raw.stderr.trim()), (3, "y"));
}

#[test]
fn request_id_of_unfinished_command_is_reported() {
    let exec = Exec::new(Who::Me);
    let line = ["--request-id", "a", "--", "sh", "-c", "echo x >>f"];
    assert_eq!(exec.ask(&line).1, 0);
    for slot in std::fs::read_dir(exec.home.join("state/requests")).unwrap() {
        let path = slot.unwrap().path();
        let mut kept: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(kept.as_object_mut().unwrap().remove("outcome").is_some());
        std::fs::write(&path, kept.to_string()).unwrap();
    }
    refused(&exec, &line, "unfinished");
    assert_eq!(std::fs::read_to_string(exec.work.join("f")).unwrap(), "x\n");
}

#[test]
fn request_id_with_requests_on_standard_input_is_refused() {
    let exec = Exec::new(Who::Me);
    let row = json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": ["true"]}}).to_string();
    assert_eq!(exec.answers(&["--request-id", "a"], &row).1, 2);
    assert_eq!(exec.ask(&["--request-id", "a", "--stdin", "-", "--", "cat"]).1, 2);
}

#[test]
fn invalid_token_is_refused_before_command_is_checked() {
    let exec = asking();
    assert_eq!(exec.ask(&["--", "echo", "a"]).0["error"]["code"], "E_CONFIRMATION_REQUIRED");
    let (shown, _) = exec.ask(&["--dry-run", "--", "echo", "a"]);
    let token = shown["data"]["confirm_token"].as_str().unwrap();
    refused(&exec, &["--confirm", token, "--timeout", "7", "--", "echo", "a"], "changed");
    refused(&exec, &["--confirm", "ct_no", "--", "echo", "a"], "forged");
    refused(&exec, &["--confirm", token, "--", "echo", "b"], "changed");
    refused(&exec, &["--confirm", token, "--", "true"], "changed");
    assert_eq!(exec.ask(&["--confirm", token, "--", "echo", "a"]).1, 0);
    for command in [["echo", "a"], ["true", "a"], ["nosuchcommand", "a"]] {
        refused(&exec, &[&["--confirm", token, "--"][..], &command].concat(), "replayed");
    }
    let row =
        json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": ["true"], "confirm": token}})
            .to_string();
    assert_eq!(exec.answers(&[], &row).0[0]["error"]["details"]["reason"], "replayed");
    let confirmed = &exec.entries("exec.intent")[0]["data"]["confirmed"];
    assert!(confirmed.as_str().unwrap().starts_with("hmac-sha256:"), "{confirmed}");
    assert!(!holds(&exec, token), "a file has the token");
}

#[test]
fn approval_with_request_id_is_asked_once_and_gives_no_token() {
    let exec = confirmed_by_owner();
    assert!(exec.ask(&["--dry-run", "--", "echo", "a"]).0["data"]["confirm_token"].is_null());
    let id = exec.ask(&["--", "echo", "a"]).0["error"]["details"]["id"].as_str().unwrap().to_owned();
    let (tried, status) = exec.ask(&["approve", "--dry-run", &id]);
    assert_eq!((status, &tried["data"]["granted"]), (0, &json!(false)), "{tried}");
    assert_eq!(exec.ask(&["approve", &id]).1, 9, "without a terminal");
    for asked in [true, false] {
        let mut terminal = exec.command(&["approve", "--request-id", "r", &id]).terminal(400);
        if asked {
            terminal.wait_for("Allow it? ");
            terminal.send("yes\r");
        }
        terminal.end();
        let text = terminal.text();
        assert!(text.contains(&format!("granted {id}  echo a")) && !text.contains("ct_"), "{text}");
    }
    assert_eq!(exec.ask(&["--", "echo", "a"]).1, 0);
    assert_eq!(exec.ask(&["--", "echo", "a"]).1, 9, "the second answer was no second grant");
}

/// True if a file of the home contains the text.
fn holds(exec: &Exec, text: &str) -> bool {
    let mut directories = vec![exec.home.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => directories.push(path),
                path => {
                    let bytes = std::fs::read(path).unwrap_or_default();
                    if String::from_utf8_lossy(&bytes).contains(text) {
                        return true;
                    }
                }
            }
        }
    }
    false
}
