//! cp-exec inside a cp-exec sandbox: it executes its command, and the supervisor outside decides about each program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::exec::{Exec, Who, details, everyone};

const POLICY: &str = include_str!("data/policies/nested.toml");

/// A project with a copy of cp-exec that its lines may run.
fn project(who: Who) -> Exec {
    let exec = Exec::with_policy(who, POLICY);
    let copy = exec.executable("bin/cp-exec", "");
    fs::copy(cp_testkit::program("cp-exec"), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    exec
}

/// The standard output of a line, regardless of its status.
#[track_caller]
fn output(exec: &Exec, line: &str) -> String {
    let (answer, _) = exec.ask(&["-c", line]);
    let details = details(&answer);
    details["stdout"].as_str().unwrap_or_else(|| panic!("no output: {answer}")).to_owned()
}

/// The last record that the program inside printed.
#[track_caller]
fn record(exec: &Exec, line: &str) -> Value {
    let output = output(exec, line);
    let last = output.lines().last().unwrap_or_else(|| panic!("{line}: nothing printed"));
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{line}: {output}"))
}

#[test]
fn command_runs_in_existing_sandbox() {
    for who in everyone() {
        let exec = project(who);
        let answer = record(&exec, "bin/cp-exec -- echo hi");
        assert_eq!((&answer["type"], &answer["data"]["stdout"]), (&json!("exec_result"), &json!("hi\n")), "{answer}");
        assert_eq!(answer["data"]["enforcement"], json!({ "nested": true }));
        assert_eq!(answer["data"]["receipt"], Value::Null);
        let steps = exec.entries("exec.step");
        let step = steps.iter().find(|step| step["data"]["argv_as_asked"] == json!(["echo", "hi"])).unwrap();
        assert_eq!((&step["data"]["decision"], &step["data"]["by"]), (&json!("allow"), &json!("line")), "{step}");

        let line = "bin/cp-exec --format raw -c 'echo \"$((1+1))\"; exit 7'; echo $?; \
                    bin/cp-exec --format raw -c 'kill -TERM $$'; echo $?; \
                    echo in | bin/cp-exec --format raw --stdin - -- cat; echo in | bin/cp-exec --format raw -- cat; \
                    bin/cp-exec --format raw --env A=b --cwd bin -c 'echo $A; ls'; \
                    bin/cp-exec --format raw --timeout 0.3 -c 'echo begun; sleep 60'; echo $?; \
                    bin/cp-exec --format raw -- no-such-program 2>/dev/null; echo $?";
        assert_eq!(output(&exec, line), "2\n7\n143\nin\nin\nb\ncp-exec\nbegun\n124\n127\n");
        let answer = record(&exec, "bin/cp-exec -c 'echo out; echo err >&2; exit 3'");
        let failed = &answer["error"];
        assert_eq!((&failed["code"], &failed["details"]["return_code"]), (&json!("E_COMMAND_FAILED"), &json!(3)));
        assert_eq!((&failed["details"]["stdout"], &failed["details"]["stderr"]), (&json!("out\n"), &json!("err\n")));
        assert_eq!(record(&exec, "bin/cp-exec --timeout 0.3 -- sleep 60")["error"]["code"], "E_TIMEOUT");
    }
}

#[test]
fn requests_on_standard_input_are_answered() {
    let exec = project(Who::Me);
    let requests = [
        json!({"tool": "shell", "arguments": {"argv": ["cat"], "stdin": "given"}}),
        json!({"tool": "shell", "arguments": {"command": "echo 'a b'"}}),
        json!({"tool": "bash", "arguments": {"command": "echo $((2+3))"}}),
        json!({"tool": "filesystem", "operation": "read_file", "arguments": {"path": "requests"}}),
    ];
    exec.write("requests", &requests.map(|request| request.to_string() + "\n").concat());
    let records = output(&exec, "bin/cp-exec <requests");
    let answers: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let printed = |at: usize| answers[at]["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{}", answers[at]));
    assert_eq!([printed(0), printed(1), printed(2)], ["given", "a b\n", "5\n"]);
    assert_eq!(answers[3]["error"]["code"], "E_FORBIDDEN", "{}", answers[3]);
    let call = json!({"ok": true, "schema_version": "1.0", "type": "tool_call",
        "data": {"id": "c", "name": "bash", "input": {"command": "pwd", "cwd": "bin"}}});
    exec.write("call", &call.to_string());
    let records = output(&exec, "bin/cp-exec <call");
    let answer: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!(answer["data"]["content"], format!("{}\n", exec.work.join("bin").display()), "{answer}");
}

#[test]
fn refusal_is_explained_and_approval_is_spent_once() {
    for who in everyone() {
        let exec = project(who);
        exec.write("text", "x");
        for command in ["-- tac text", "-c 'env tac text'", "-c 'true; tac text'"] {
            let line = format!("bin/cp-exec {command}");
            let (outer, status) = exec.ask(&["-c", &line]);
            let stdout = details(&outer)["stdout"].as_str().unwrap_or_else(|| panic!("{outer}"));
            let inner: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
            assert!(inner["ok"] == false && inner.to_string().contains("restricted"), "{command}: {inner}");
            assert_eq!((status, &outer["error"]["details"]["denied"][0]["argv"][0]), (4, &json!("tac")), "{outer}");
            assert_eq!(output(&exec, &format!("bin/cp-exec --format raw {command} 2>/dev/null; echo $?")), "126\n");
        }
        let push = "bin/cp-exec -c 'git push'";
        let (outer, status) = exec.ask(&["-c", push]);
        let id = details(&outer)["id"].as_str().unwrap_or_else(|| panic!("{outer}"));
        assert_eq!((status, &outer["error"]["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{outer}");
        assert!(details(&outer)["stdout"].as_str().unwrap().contains(id), "{outer}");
        if who != Who::Me {
            continue;
        }
        exec.approve(id, "yes");
        // There is no repository, so git itself fails now.
        let (outer, _) = exec.ask(&["-c", push]);
        assert_eq!(details(&outer)["denied"], Value::Null, "{outer}");
        assert_eq!(exec.entries("approval.spent").len(), 1);
        assert_eq!(exec.ask(&["-c", push]).1, 9, "the approval was for one start");
    }
}

#[test]
fn check_leaves_decision_to_start_and_other_verbs_are_refused() {
    let exec = project(Who::Me);
    for words in ["-- echo a", "-- git push", "-- tac a", "-c 'tac a'"] {
        let decision = record(&exec, &format!("bin/cp-exec check {words}"))["data"].clone();
        assert_eq!((&decision["decision"], &decision["rule"]), (&json!("allow"), &json!("inside")), "{decision}");
    }
    for verb in ["policy show", "policy init", "approve", "undo last", "hook install claude", "hook doctor"] {
        let answer = output(&exec, &format!("bin/cp-exec --format json {verb} </dev/null; true"));
        assert!(answer.contains("not available inside a cp-exec sandbox"), "{verb}: {answer}");
    }
    for option in ["--dry-run", "--confirm x", "--request-id x", "--read-only", "--tools bin"] {
        let answer = record(&exec, &format!("bin/cp-exec {option} -- echo a"));
        assert_eq!(answer["error"]["code"], "E_USAGE", "{option}: {answer}");
    }
    let doctor = output(&exec, "bin/cp-exec doctor");
    assert!(doctor.contains("inside a cp-exec sandbox"), "{doctor}");
}

#[test]
fn home_is_neither_seen_nor_needed() {
    for who in everyone() {
        let exec = project(who);
        exec.ask(&["-c", "true"]);
        for file in [exec.ledger(), exec.home.join("config/policy.toml"), exec.home.join("keys")] {
            let line = format!("ls {0} 2>/dev/null || cat {0} 2>/dev/null || echo hidden", file.display());
            assert_eq!(output(&exec, &line), "hidden\n");
            assert!(file.exists() || file.ends_with("keys"), "the control: {}", file.display());
        }
        exec.write("closed/config/cp.toml", "not a setting");
        fs::set_permissions(exec.work.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
        for home in ["--home closed", "--home /proc/none", "--home /", &format!("--home {}", exec.home.display())] {
            assert_eq!(output(&exec, &format!("bin/cp-exec {home} --format raw -- echo hi")), "hi\n", "{home}");
        }
        assert_eq!(output(&exec, "env -i bin/cp-exec --format raw -- /bin/echo hi"), "hi\n");
        fs::set_permissions(exec.work.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn hostile_message_does_not_affect_run() {
    cp_testkit::needs!("python3");
    let attacks = ["silent", "garbage", "long", "patient", "orphaned", "many", "closing", "deaf"];
    for who in everyone() {
        let exec = project(who);
        exec.write("bin/attack.py", include_str!("data/python/attack.py"));
        for name in attacks {
            let line = format!("python3 bin/attack.py {name} && echo after");
            let (answer, status) = exec.ask(&["-c", &line]);
            assert_eq!((status, &details(&answer)["stdout"]), (0, &json!("served True\nafter\n")), "{name}: {answer}");
        }
        assert!(exec.entries("host.intent").is_empty(), "only an agent's calls are recorded");
    }
}

#[test]
fn killed_cp_exec_does_not_affect_run() {
    let exec = project(Who::Me);
    let line =
        "bin/cp-exec -- sleep 60 & sleep 0.5; kill -9 $!; wait $!; echo $?; bin/cp-exec --format raw -- echo after";
    assert_eq!(output(&exec, line), "137\nafter\n");
    // The control: the socket is there only inside.
    assert!(!std::path::Path::new("/run/cp-exec/supervisor").exists());
}
