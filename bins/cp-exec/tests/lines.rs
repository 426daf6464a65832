//! Command lines: a shell in the sandbox runs them, and each program is decided about when it is started.

use std::process::Command;

use serde_json::{Value, json};

use crate::exec::{Exec, Who, details, everyone};

/// `git push` asks, `rm` is restricted, and much is allowed.
const POLICY: &str = include_str!("data/policies/lines.toml");

fn denied_rules(answer: &Value) -> Vec<&str> {
    let denied = details(answer)["denied"].as_array().map(Vec::as_slice).unwrap_or_default();
    denied.iter().map(|step| step["rule"].as_str().unwrap()).collect()
}

#[test]
fn line_has_output_and_status_of_bash() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.write("a b.txt", "one\ntwo\n");
        exec.write("c.txt", "three\n");
        for line in [
            "for f in *.txt; do wc -l <\"$f\"; done",
            "X=$(cat c.txt); echo \"got $X\" | tr a-z A-Z | cut -c1-5",
            "while read -r l; do echo \"[$l]\"; done <\"a b.txt\"",
            "cat <<EOF\n$((2+3)) $HOME_NOT_SET\nEOF",
            "cat <<<text; exit 7",
            "f() { return 3; }; f || echo $?",
            "set -o pipefail; false | true; echo $?",
            "diff=0; [[ a == a ]] && echo ${diff:-1} ${#diff}",
            "cat <(echo in) - <<<x",
            "FOO=x bash -c 'echo $FOO'; export BAR=y; env | grep ^BAR",
            "cd /; echo $PWD; cd - >/dev/null; ls *.txt | sort",
            "sleep 0.01 & wait $!; echo done",
            "no_such_program; echo $?",
            "-not-an-option",
            "kill -9 $$",
        ] {
            let (answer, _) = exec.ask(&["-c", line]);
            let outside = Command::new("bash").args(["-c", "--", line]).current_dir(&exec.work).output().unwrap();
            let result = details(&answer);
            assert_eq!(result["stdout"], json!(String::from_utf8_lossy(&outside.stdout)), "{line}: {answer}");
            assert_eq!(result["return_code"], json!(outside.status.code()), "{line}: {answer}");
            assert_eq!(result["denied"], json!([]), "{line}: {answer}");
        }
    }
}

/// Ways to have the line start a command, with its words in `@`.
const SPELLINGS: [&str; 20] = [
    "@",
    "(@)",
    "{ @; }",
    "true && @",
    "echo $(@)",
    "cat <(@)",
    "f() { @; }; f",
    "eval '@'",
    "sh -c '@'",
    "bash -ec '@'",
    "bash -o pipefail -c '@'",
    "bash --norc -c '@'",
    "echo '@' | sh",
    "env @",
    "env -i PATH=$PATH @",
    "timeout 5 nice @",
    "echo | xargs @",
    "find . -maxdepth 0 -exec @ ';'",
    "@ & wait",
    "setsid -w nohup sh -c '@' 2>/dev/null",
];

#[test]
fn refused_program_does_not_run_from_any_line() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        // The kernel keeps a program of the tools directory from nothing, so only the decision can keep `rm` from its
        // work.
        for (spelling, at) in who.turns(SPELLINGS.iter().zip(0..)) {
            exec.write("victim", "x");
            let (answer, status) = exec.ask(&["-c", &spelling.replace('@', "rm victim")]);
            assert!(exec.work.join("victim").exists(), "{spelling}: {answer}");
            assert_eq!((status, &answer["error"]["code"]), (4, &json!("E_FORBIDDEN")), "{spelling}: {answer}");
            assert!(denied_rules(&answer).contains(&"restricted"), "{spelling}: {answer}");
            assert!(details(&answer)["exit_code"].is_i64() || details(&answer)["exit_code"].is_null());
            // The control: the same way an allowed program does its work.
            let made = format!("made{at}");
            let (answer, _) = exec.ask(&["-c", &spelling.replace('@', &format!("touch {made}"))]);
            assert!(exec.work.join(&made).exists() && denied_rules(&answer).is_empty(), "{spelling}: {answer}");
        }
        let steps = exec.entries("exec.step");
        assert!(
            steps.iter().any(|step| step["data"]["decision"] == "deny" && step["data"]["argv_as_asked"][0] == "rm")
        );
        let intents = exec.entries("exec.intent");
        assert!(steps.iter().all(|step| intents.iter().any(|intent| intent["seq"] == step["data"]["intent"])));
        assert!(intents[0]["data"]["line"].as_str().unwrap().contains("rm victim"), "{}", intents[0]);
    }
}

#[test]
fn child_of_program_is_checked_for_publication_only() {
    cp_testkit::needs!("make");
    let exec = Exec::with_policy(Who::Me, POLICY);
    exec.write("Makefile", "clean:\n\trm victim\npublish:\n\tgit push\n");
    exec.write("victim", "x");
    let (answer, status) = exec.ask(&["-c", "make -s clean"]);
    assert!(status == 0 && !exec.work.join("victim").exists(), "{answer}");
    let (answer, status) = exec.ask(&["-c", "make -s publish; echo $?"]);
    assert_eq!((status, &answer["error"]["code"]), (9, &json!("E_HUMAN_REQUIRED")), "{answer}");
    assert_eq!(details(&answer)["stdout"], "2\n");
    let by: Vec<Value> = exec.entries("exec.step").iter().map(|step| step["data"]["by"].clone()).collect();
    assert!(by.contains(&json!("line")) && by.contains(&json!("program")), "{by:?}");
}

#[test]
fn script_is_a_program_and_a_shell_with_a_line_is_not() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    exec.executable("tools/clean.sh", "#!/bin/sh\nrm victim\n");
    for line in ["tools/clean.sh", "sh tools/clean.sh", "bash -o errexit tools/clean.sh", "bash -- tools/clean.sh"] {
        exec.write("victim", "x");
        let (answer, status) = exec.ask(&["-c", line]);
        assert!(status == 0 && !exec.work.join("victim").exists(), "{line}: {answer}");
    }
    exec.write("victim", "x");
    let (answer, _) = exec.ask(&["-c", "sh -c \"$(cat tools/clean.sh)\""]);
    assert!(exec.work.join("victim").exists(), "{answer}");
    // A program outside the execute paths is refused.
    exec.executable("other/x", "#!/bin/sh\necho ran\n");
    let (answer, _) = exec.ask(&["-c", "other/x"]);
    assert_eq!(denied_rules(&answer), ["not_allowed"], "{answer}");
}

#[test]
fn false_argv0_does_not_change_decision() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    exec.write("victim", "x");
    let (answer, _) = exec.ask(&["-c", "exec -a true rm victim"]);
    assert!(exec.work.join("victim").exists(), "{answer}");
    let (answer, _) = exec.ask(&["-c", "exec -a rm /bin/true"]);
    assert!(denied_rules(&answer).is_empty(), "{answer}");
    let (answer, _) = exec.ask(&["-c", "mkdir d; cat /bin/rm >d/true 2>/dev/null; PATH=d:$PATH; true x; type -P true"]);
    assert!(denied_rules(&answer).is_empty(), "a file that cannot be executed is not started: {answer}");
}

#[test]
fn loader_variable_of_line_is_refused() {
    cp_testkit::needs!("make");
    let exec = Exec::with_policy(Who::Me, POLICY);
    for line in [
        "LD_PRELOAD=x env true",
        "export LD_LIBRARY_PATH=/usr/lib/x; env true",
        "LD_LIBRARY_PATH=.:/usr/lib/x env true",
        "LD_LIBRARY_PATH=../x env true",
        "env BASH_ENV=x bash -c :",
        "GLIBC_TUNABLES=x env true",
    ] {
        let (answer, _) = exec.ask(&["-c", line]);
        assert_eq!(denied_rules(&answer), ["env_never"], "{line}: {answer}");
    }
    for line in [
        "PYTHONPATH=src env true",
        "LD_LIBRARY_PATH=.:lib env true",
        "export NODE_ENV=test; env true",
        "ENV=prod env true",
    ] {
        assert!(denied_rules(&exec.ask(&["-c", line]).0).is_empty(), "{line}");
    }
    // A program may set it for its own children, as cargo does.
    exec.write("Makefile", "all:\n\tLD_LIBRARY_PATH=x true\n");
    let (answer, status) = exec.ask(&["-c", "make -s"]);
    assert_eq!(status, 0, "{answer}");
}

#[test]
fn step_awaiting_approval_runs_once_after_approval() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    let line = "env echo before; git push; echo $?";
    let (answer, status) = exec.ask(&["-c", line]);
    assert_eq!((status, details(&answer)["stdout"].as_str()), (9, Some("before\n126\n")), "{answer}");
    let stderr = details(&answer)["stderr"].as_str().unwrap();
    let id = details(&answer)["id"].as_str().unwrap();
    assert!(stderr.starts_with(&format!("cp-exec: git push: needs approval; run cp-exec approve {id}\n")), "{stderr}");
    assert_eq!(details(&answer)["denied"][0]["approval"], *id);
    assert_eq!(details(&answer)["approval"]["shown"]["ran"], json!(["env echo before", "echo before"]));
    assert!(exec.approve(id, "yes").contains("ran before: env echo before"));
    // There is no remote, so git itself fails now.
    let (answer, status) = exec.ask(&["-c", line]);
    assert_eq!((status, details(&answer)["stdout"].as_str()), (0, Some("before\n128\n")), "{answer}");
    assert_eq!(exec.entries("approval.spent").len(), 1);
    assert_eq!(exec.ask(&["-c", line]).1, 9, "the approval was for one start");
}

#[test]
fn time_of_question_does_not_count_against_timeout() {
    let rules = POLICY.replace("[exec]", "[exec]\nconfirm = \"owner\"\ntimeout = 1.5");
    let exec = Exec::with_policy(Who::Me, &rules);
    for (answer, said) in [("y\r", "128"), ("n\r", "126")] {
        let mut terminal = exec.command(&["-c", "git push; echo status $?"]).terminal(200);
        terminal.wait_for("Allow it?");
        std::thread::sleep(std::time::Duration::from_secs(2));
        terminal.send(answer);
        terminal.end();
        assert!(terminal.text().contains(&format!("status {said}")), "{}", terminal.text());
    }
    // The control: other waiting does count.
    assert_eq!(exec.ask(&["-c", "sleep 3"]).0["error"]["code"], "E_TIMEOUT");
}

#[test]
fn tool_bash_accepts_line_and_tool_shell_one_command() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    let ask = |tool: &str, line: &str| exec.call(&[], tool, &json!({"command": line}))["data"].clone();
    assert_eq!(ask("bash", "echo a | tr a b")["content"], "b\n");
    assert_eq!(ask("shell", "echo a | tr a b")["is_error"], true);
    assert_eq!(ask("shell", "echo a")["content"], "a\n");
    assert_eq!(ask("shell", "echo 'a b'")["content"], "a b\n");
}

#[test]
fn strict_line_runs_only_listed_programs() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, &POLICY.replace("[exec]", "[exec]\nprofile = \"strict\""));
        let (answer, status) = exec.ask(&["-c", "echo b a | tr ' ' '\\n' | sort | head -1; ls >/dev/null; echo $?"]);
        assert_eq!((status, details(&answer)["stdout"].as_str()), (0, Some("a\n0\n")), "{answer}");
        // The program that another program starts is not decided about by its name, so only the kernel refuses it.
        let started =
            |name: &str| format!("python3 -c 'import os; os.execvp(\"{name}\", [\"{name}\", \"--version\"])'");
        let (answer, _) = exec.ask(&["-c", &started("perl")]);
        assert_ne!(details(&answer)["return_code"], 0, "{answer}");
        let (answer, status) = exec.ask(&["-c", &started("cat")]);
        assert_eq!(status, 0, "the control: {answer}");
    }
}

#[test]
fn tool_call_of_line_reports_refused_or_pending_step() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    let call = |line: &str| exec.call(&[], "bash", &json!({"command": line}));
    let refused = &call("echo a; rm x; true")["data"];
    let content = refused["content"].as_str().unwrap();
    assert_eq!((&refused["is_error"], &refused["exit_code"]), (&json!(true), &json!(0)), "{refused}");
    assert!(content.starts_with("a\n") && content.ends_with("which is restricted"), "{refused}");
    let asks = call("echo a; git push; true");
    assert_eq!(asks["error"]["code"], "E_HUMAN_REQUIRED", "{asks}");
    assert_eq!(call("echo a; true")["data"]["is_error"], false);
}

#[test]
fn git_config_writes_repository_of_the_run_but_not_that_of_the_owner() {
    for who in everyone() {
        let exec = crate::guard::repository(who);
        exec.policy(POLICY);
        for (line, status) in [
            ("git init -q a && cd a && git config user.name x && git config user.name", 0),
            ("git init -q b && git -C b config user.name x", 0),
            ("git config user.name x", 126),
            ("git init -q c && cd c && git -C .. config user.name x", 126),
        ] {
            let (answer, _) = exec.ask(&["-c", line]);
            assert_eq!(details(&answer)["return_code"], json!(status), "{who:?}: {line}: {answer}");
            assert_eq!(denied_rules(&answer).is_empty(), status == 0, "{who:?}: {line}: {answer}");
        }
        assert!(!exec.work.read(".git/config").contains("name = x"), "{who:?}");
    }
}
