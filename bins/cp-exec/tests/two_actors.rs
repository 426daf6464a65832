//! The owner works in a repository beside a run, and runs work in it beside each other.

use std::fs;
use std::thread;

use cp_testkit::Background;
use serde_json::Value;

use crate::exec::{Exec, everyone};
use crate::guard::{owner, repository, undone};

/// Does something as the owner as soon as a run has made a file.
fn beside(exec: &Exec, script: &str, mark: &str, line: &str) -> (Value, i32, String) {
    thread::scope(|scope| {
        let run = scope.spawn(|| exec.ask(&["--timeout", "20", "--", "sh", "-c", script]));
        exec.wait_for(mark);
        let told = owner(exec, line);
        let (answer, status) = run.join().unwrap();
        (answer, status, told)
    })
}

#[test]
fn owner_commits_and_index_during_run_stay() {
    for who in everyone() {
        let exec = repository(who);
        let script = "git status -s; touch began; sleep 1; git commit -q -m run --allow-empty -- began 2>&1 || git commit -q -m run --allow-empty";
        let line = "echo n > new && git add new && git commit -qm owner && echo s > staged && git add staged";
        let (answer, status, _) = beside(&exec, script, "began", line);
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        let log = owner(&exec, "git log --format=%s; git ls-tree --name-only HEAD; git ls-files staged; git fsck 2>&1");
        for name in ["run", "owner", "new", "staged"] {
            assert!(log.lines().any(|line| line == name), "{who:?} {name}: {log}");
        }
    }
}

#[test]
fn parallel_runs_in_repository_keep_all_commits() {
    for who in everyone() {
        let exec = repository(who);
        let request = |at: usize| {
            let commit = format!(
                "for i in 1 2 3 4 5 6 7 8 9; do git commit -q --allow-empty -m c{at} && exit 0; sleep 0.2; done; exit 1"
            );
            let command =
                if at.is_multiple_of(4) { format!("sh -c '{commit}'") } else { "git status --short".to_owned() };
            serde_json::json!({ "tool": "shell", "operation": "execute_command", "arguments": { "command": command } })
                .to_string()
        };
        // Four programs, of which each has one of the commits.
        let mut running: Vec<_> = (0..4).map(|_| exec.command(&[]).start()).collect();
        for at in 0..16 {
            running[(at + at / 4) % 4].write(request(at) + "\n");
        }
        running.iter_mut().for_each(Background::close_stdin);
        let answers: Vec<_> = running.into_iter().flat_map(|child| child.wait().records()).collect();
        let succeeded = answers.iter().filter(|answer| answer["ok"] == true && answer["data"]["argv"].is_array());
        assert_eq!(succeeded.count(), 16, "{who:?}: {answers:?}");
        assert_eq!(owner(&exec, "git log --format=%s | grep -c ^c"), "4\n", "{who:?}");
        let placeholder = exec.work.join(".git/commondir");
        assert!(!placeholder.exists(), "{who:?}: a placeholder stayed");
    }
}

#[test]
fn owner_settings_changed_during_run_stay_and_end_run() {
    for who in everyone() {
        let exec = repository(who);
        let (answer, status, _) =
            beside(&exec, "touch began; sleep 10; touch ended", "began", "git config core.editor vi");
        assert_eq!(answer["error"]["code"], "E_CONFLICT", "{who:?} {status}: {answer}");
        assert!(!exec.work.join("ended").exists());
        assert_eq!(owner(&exec, "git config core.editor"), "vi\n");
        // The control: a commit of the owner replaces nothing that is read-only.
        let script = "rm began; touch again; sleep 1; touch ended";
        let (answer, status, _) = beside(&exec, script, "again", "git commit -q --allow-empty -m b");
        assert_eq!(status, 0, "{answer}");
        assert!(exec.work.join("ended").exists());
    }
}

#[test]
fn settings_written_by_run_after_owner_change_are_restored() {
    for who in everyone() {
        let exec = repository(who);
        let script = "touch began; while :; do echo '[core] fsmonitor = evil' >> .git/config; done 2>/dev/null";
        let (answer, _, _) = beside(&exec, script, "began", "git config core.editor vi");
        assert_eq!(answer["error"]["code"], "E_CONFLICT", "{who:?}: {answer}");
        let settings = fs::read_to_string(exec.work.join(".git/config")).unwrap();
        assert!(!settings.contains("fsmonitor"), "{who:?}: {settings} {answer}");
        assert_eq!(owner(&exec, "git log --format=%s"), "a\n");
    }
}
