//! cp-exec inside a cp-exec sandbox: it executes its command, and the supervisor outside decides about each program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

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

#[test]
fn command_runs_in_existing_sandbox() {
    for who in everyone() {
        let exec = project(who);
        assert_eq!(output(&exec, "bin/cp-exec -- echo hi"), "hi\n");
        let steps = exec.entries("exec.step");
        let step = steps.iter().find(|step| step["data"]["argv_as_asked"] == json!(["echo", "hi"])).unwrap();
        assert_eq!((&step["data"]["decision"], &step["data"]["by"]), (&json!("allow"), &json!("line")), "{step}");
        let line = "bin/cp-exec -c 'echo \"$((1+1))\"; exit 7'; echo $?; \
                    bin/cp-exec --format text -c 'kill -TERM $$'; echo $?; \
                    echo in | bin/cp-exec -- cat; echo '{}' | bin/cp-exec --format raw -c 'cat >&2' 2>&1; \
                    bin/cp-exec --env A=b --cwd bin -c 'echo $A; ls'; bin/cp-exec -c '-x'; echo $?; \
                    bin/cp-exec -- no-such-program 2>/dev/null; echo $?; bin/cp-exec -C none -- echo a; echo $?";
        assert_eq!(output(&exec, line), "2\n7\n143\nin\n{}\nb\ncp-exec\n127\n127\n125\n");
    }
}

#[test]
fn all_but_commands_is_refused() {
    let exec = project(Who::Me);
    exec.write("request", &(json!({"tool": "bash", "arguments": {"command": "touch made"}}).to_string() + "\n"));
    let options = [
        "--json",
        "--format json",
        "--dry-run",
        "--confirm x",
        "--request-id x",
        "--read-only",
        "--tools bin",
        "--timeout 1",
        "--stdin -",
        "--root .",
        "--closed",
        "--dangerous",
    ];
    let options = options.map(|option| format!("{option} -- touch made"));
    let verbs = [
        "",
        "check -- echo a",
        "check",
        "policy show",
        "policy init",
        "approve",
        "undo last",
        "hook install claude",
        "hook doctor",
    ];
    for words in options.into_iter().chain(verbs.map(str::to_owned)) {
        let line = format!("bin/cp-exec {words} <request 2>&1; echo $?");
        let said = output(&exec, &line);
        let is_refused = said.contains("executes a command, and nothing else") && said.ends_with("\n4\n");
        assert!(is_refused && said.contains("E_FORBIDDEN"), "{words}: {said}");
    }
    assert!(!exec.work.join("made").exists());
    // The control: without an option it is executed.
    output(&exec, "bin/cp-exec -- touch made");
    assert!(exec.work.join("made").exists());
    let doctor = output(&exec, "bin/cp-exec doctor");
    assert!(doctor.contains("inside a cp-exec sandbox"), "{doctor}");
}

#[test]
fn refusal_is_explained_and_approval_is_spent_once() {
    for who in everyone() {
        let exec = project(who);
        exec.write("text", "x");
        for command in ["-- tac text", "-c 'env tac text'", "-c 'true; tac text'"] {
            let (outer, status) = exec.ask(&["-c", &format!("bin/cp-exec {command}; echo $?")]);
            let details = details(&outer);
            assert_eq!(
                (status, &details["stdout"], &details["denied"][0]["argv"][0]),
                (4, &json!("126\n"), &json!("tac"))
            );
            assert!(details["stderr"].as_str().unwrap().contains("restricted"), "{command}: {outer}");
        }
        let push = "bin/cp-exec -c 'git push'";
        let (outer, status) = exec.ask(&["-c", push]);
        let id = details(&outer)["id"].as_str().unwrap_or_else(|| panic!("{outer}"));
        assert_eq!((status, &outer["error"]["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{outer}");
        assert!(details(&outer)["stderr"].as_str().unwrap().contains(id), "{outer}");
        if who != Who::Me {
            continue;
        }
        exec.approve(id, "yes");
        // There is no repository, so git itself fails now.
        let (outer, _) = exec.ask(&["-c", push]);
        assert_eq!(details(&outer)["denied"], json!([]), "{outer}");
        assert_eq!(exec.entries("approval.spent").len(), 1);
        assert_eq!(exec.ask(&["-c", push]).1, 9, "the approval was for one start");
    }
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
    let attacks = ["silent", "garbage", "long", "descriptors", "orphaned", "many", "closing", "deaf"];
    for who in everyone() {
        let exec = project(who);
        exec.write("bin/attack.py", include_str!("data/python/attack.py"));
        for name in who.turns(attacks) {
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
