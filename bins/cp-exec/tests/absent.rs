//! Paths of the policy that do not exist: nothing is made in the project for them, and they can be used once a command makes them.

use std::fs;

use serde_json::json;

use crate::exec::{Exec, POLICY, Who, everyone};

/// The execute paths that `policy init` writes for a project.
fn project(who: Who) -> Exec {
    let paths = "[paths]\nread = [\".\"]\nwrite = [\".\"]\nexecute = [\"scripts/**\", \"tests/**\", \"target/**\", \"node_modules/**\"]\n";
    Exec::with_policy(who, &format!("{}\n{paths}", POLICY.replace("\"head\"", "\"head\", \"ls\", \"mkdir\", \"test\"")))
}

#[test]
fn missing_execute_directory_is_missing_for_command() {
    for who in everyone() {
        let exec = project(who);
        assert_eq!(exec.inside("ls -a | wc -l")["stdout"].as_str().unwrap().trim(), "2", "{who:?}");
        assert_eq!(exec.ask(&["--", "test", "-d", "node_modules"]).1, 1, "{who:?}");
        let (answer, status) = exec.ask(&["--", "mkdir", "tests"]);
        assert_eq!(status, 0, "{who:?}: {answer}");
        assert_eq!(exec.ask(&["--", "test", "-d", "tests"]).1, 0, "{who:?}: the control");
        assert_eq!(fs::read_dir(&*exec.work).unwrap().count(), 1, "{who:?}: only what the command made is there");
    }
}

#[test]
fn program_in_new_execute_directory_runs() {
    for who in everyone() {
        let exec = project(who);
        let build = "mkdir -p target/debug && printf '#!/bin/sh\\necho built\\n' > target/debug/x && chmod +x target/debug/x && ./target/debug/x";
        assert_eq!(exec.inside(build)["stdout"], "built\n", "{who:?}");
        assert_eq!(exec.inside("./target/debug/x")["stdout"], "built\n", "{who:?}: the next run");
        // The control: a policy without execute paths.
        let exec = Exec::new(who);
        assert_ne!(exec.ask(&["--", "sh", "-c", build]).1, 0, "{who:?}");
    }
}

#[test]
fn parallel_requests_in_one_project_all_run() {
    for who in everyone() {
        let exec = project(who);
        let request =
            |n: usize| json!({"tool": "shell", "arguments": {"argv": ["sh", "-c", format!("sleep 0.1; echo {n}")]}});
        let input: Vec<String> = (0..16).map(|n| request(n).to_string()).collect();
        let (answers, status) = exec.answers(&["--jobs", "8"], &input.join("\n"));
        let ran = answers.iter().filter(|answer| answer["data"]["stdout"].is_string()).count();
        assert_eq!((ran, status), (16, 0), "{who:?}: {answers:?}");
        assert_eq!(fs::read_dir(&*exec.work).unwrap().count(), 0, "{who:?}");
    }
}
