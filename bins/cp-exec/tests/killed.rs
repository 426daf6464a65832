//! A run whose cp-exec is killed is settled by the next start: what it left behind that runs later is in quarantine,
//! and its intent has a result.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::exec::{Exec, everyone};

/// The number of results of each intent.
fn results(exec: &Exec) -> BTreeMap<u64, usize> {
    let intents = exec.entries("exec.intent");
    let mut results: BTreeMap<u64, usize> = intents.iter().map(|entry| (entry["seq"].as_u64().unwrap(), 0)).collect();
    for entry in exec.entries("exec.result") {
        *results.entry(entry["data"]["intent"].as_u64().unwrap()).or_default() += 1;
    }
    results
}

/// The files of runs that are not settled. A process that was killed before its run began leaves one without a name.
fn open_runs(exec: &Exec) -> usize {
    let files = fs::read_dir(exec.home.join("state/runs")).into_iter().flatten().flatten();
    files.filter(|entry| entry.path().extension().is_some_and(|end| end == "json")).count()
}

#[test]
fn killed_run_is_settled_by_next_start() {
    let step = cp_testkit::times(12, 1);
    for who in everyone() {
        let (mut planted, mut settled) = (0, 0);
        // The last round is killed when everything is there, however slow the machine is.
        for delay in (0..150_u64).step_by(step).chain([u64::MAX]) {
            let exec = Exec::new(who);
            exec.write("sub/.npmrc", "mine\n");
            std::os::unix::fs::symlink("cfg", exec.work.join(".cursor")).unwrap();
            let script = "echo x > .envrc; mkdir -p a/.vscode cfg; echo x > a/.vscode/tasks.json; echo x > cfg/hooks.json; echo x > plain; \
                          rm .cursor; sleep 5";
            let run = exec.command(&["--", "sh", "-c", script]).start();
            match delay {
                u64::MAX => exec.wait_for("plain"),
                delay => sleep(Duration::from_millis(delay)),
            }
            run.kill();
            planted += usize::from(exec.work.join(".envrc").exists());
            let (answer, status) = exec.ask(&["--", "true"]);
            assert_eq!(status, 0, "{who:?} after {delay} ms: {answer}");
            for name in [".envrc", "a/.vscode/tasks.json", "cfg/hooks.json"] {
                assert!(!exec.work.join(name).exists(), "{who:?} after {delay} ms: {name}");
            }
            assert_eq!(exec.work.read("sub/.npmrc"), "mine\n", "{who:?} after {delay} ms");
            assert!(exec.work.join(".cursor").is_symlink(), "{who:?} after {delay} ms");
            assert_eq!(open_runs(&exec), 0, "{who:?} after {delay} ms");
            let notices = answer["meta"]["notices"].as_array().cloned().unwrap_or_default();
            let has_notice = notices.iter().any(|notice| notice["type"] == "killed_run");
            let interrupted = |entry: &Value| entry["data"]["code"] == "E_INTERRUPTED";
            let result = exec.entries("exec.result").into_iter().find(interrupted);
            assert_eq!(has_notice, result.is_some(), "{who:?} after {delay} ms: {answer}");
            settled += usize::from(has_notice);
            assert!(results(&exec).values().all(|count| *count <= 1), "{who:?} after {delay} ms: {:?}", results(&exec));
        }
        // The control: in some of the rounds there was something to settle.
        assert!(planted > 0 && settled >= planted, "{who:?}: {planted} planted, {settled} settled");
    }
}

fn git(exec: &Exec, arguments: &[&str]) {
    exec.program("git").args(["-c", "safe.directory=*"]).args(arguments).run().success();
}

#[test]
fn repository_of_killed_run_is_settled_by_next_start() {
    // What git would follow or start later, and where the next start finds it.
    const PLANTED: [(&str, &str); 5] = [
        (".git/rebase-merge", "mkdir .git/rebase-merge; echo 'exec ./evil' > .git/rebase-merge/git-rebase-todo"),
        (".git/remotes", "mkdir .git/remotes; echo 'URL: ext::sh' > .git/remotes/zz"),
        (".git/objects/info/http-alternates", "echo http://x > .git/objects/info/http-alternates"),
        (".git/link", "ln -s /etc/passwd .git/link"),
        (".git/modules/m", "mkdir -p .git/modules/m/refs .git/modules/m/objects; echo x > .git/modules/m/HEAD"),
    ];
    for who in everyone() {
        let exec = Exec::new(who);
        git(&exec, &["init", "-q"]);
        let script = PLANTED.map(|(_, line)| line).join("; ");
        let packed = "echo \"$(echo x | git hash-object -w --stdin) refs/replace/x\" > .git/packed-refs";
        let run = exec.command(&[
            "--",
            "sh",
            "-c",
            &format!("{script}; {packed}; echo a > .git/plain; echo x > plain; sleep 60"),
        ]);
        let run = run.start();
        exec.wait_for("plain");
        run.kill();
        git(&exec, &["config", "alias.owner", "!true"]);
        let (answer, status) = exec.ask(&["--", "true"]);
        assert_eq!(status, 0, "{who:?}: {answer}");
        for (path, _) in PLANTED {
            assert!(exec.work.join(path).symlink_metadata().is_err(), "{who:?}: {path} is left");
        }
        assert!(!exec.work.read(".git/packed-refs").contains("refs/replace"), "{who:?}");
        // The control: harmless files of the run and settings of the owner stay.
        assert_eq!(exec.work.read(".git/plain"), "a\n", "{who:?}");
        assert!(exec.work.read(".git/config").contains("!true"), "{who:?}");
    }
}

#[test]
fn next_start_and_undo_name_killed_run_in_every_format() {
    for who in everyone() {
        for format in ["raw", "text", "json"] {
            let exec = Exec::new(who);
            exec.ask(&["--", "touch", "older"]);
            let run = exec.command(&["-c", "touch new; echo x >.envrc; touch done; sleep 60"]).start();
            exec.wait_for("done");
            run.kill();
            let next = |words: &[&str]| exec.command(&[&["--format", format], words].concat()).run();
            let told = next(&["--", "true"]).stderr;
            assert!(told.contains("was killed before it ended"), "{who:?} {format}: {told}");
            assert!(told.contains(".envrc: other programs") && told.contains("it is now "), "{who:?} {format}: {told}");
            let again = next(&["--", "true"]).stderr;
            assert!(!again.contains("killed"), "{who:?} {format}: {again}");
            let undo = next(&["undo", "last", "--dry-run"]);
            let names = |name: &str| undo.stdout.contains(name) || undo.stderr.contains(name);
            assert!(undo.status == 0 && names("/new") && !names("/older"), "{who:?} {format}: {undo:?}");
            // The manifests of another boot are not trusted.
            let run = exec.command(&["-c", "touch after; sleep 60"]).start();
            exec.wait_for("after");
            run.kill();
            for manifest in fs::read_dir(exec.home.join("state/kept/runs")).unwrap().flatten() {
                fs::write(manifest.path(), "another boot").unwrap();
            }
            // An undo is a start too.
            let undo = next(&["undo", "last", "--dry-run"]);
            assert!(
                undo.status == 3 && undo.stderr.contains("is not recorded") && exec.work.join("after").exists(),
                "{who:?} {format}: {undo:?}"
            );
            // The control: a later run is the last one.
            exec.ask(&["--", "touch", "later"]);
            let undo = next(&["undo", "last", "--dry-run"]);
            assert!(
                undo.status == 0 && (undo.stdout.clone() + &undo.stderr).contains("later"),
                "{who:?} {format}: {undo:?}"
            );
        }
    }
}

#[test]
fn active_run_is_not_settled() {
    for who in everyone() {
        let exec = Exec::new(who);
        let run =
            exec.command(&["--", "sh", "-c", "echo x > .envrc; echo x > started; sleep 1; echo x > ended"]).start();
        exec.wait_for("started");
        let (answer, _) = exec.ask(&["--", "true"]);
        assert!(!answer.to_string().contains("killed_run"), "{who:?}: {answer}");
        assert_eq!(open_runs(&exec), 1, "{who:?}");
        let first = run.finish().records().pop().unwrap();
        assert_eq!(first["error"]["details"]["rule"], "guard", "{who:?}: {first}");
        assert!(exec.work.join("ended").exists() && !exec.work.join(".envrc").exists(), "{who:?}");
        assert_eq!(results(&exec).into_values().collect::<Vec<_>>(), [1, 1], "{who:?}");
        assert_eq!(open_runs(&exec), 0, "{who:?}");
    }
}

#[test]
fn locks_of_ended_run_do_not_stay() {
    for who in everyone() {
        // Ended by its deadline, killed together with cp-exec, and ended by its own signal.
        let endings = ["deadline", "killed", "itself"];
        let cases = endings.map(|ending| ["nobody", "descriptor", "commit"].map(|holder| (ending, holder)));
        for (ending, holder) in who.turns(cases.concat()) {
            let exec = Exec::new(who);
            let outside = |script: &str| exec.outside(&format!("cd {} && {script}", exec.work.display()));
            let make = "git init -q && git config user.name a && git config user.email b && echo a >f && git add f && git commit -qm a";
            outside(make).run().success();
            let before =
                outside("touch .git/refs/heads/kept.lock; find .git -name cp-keep -prune -o \\( -name '*.lock' -o -name gc.pid \\) -print")
                    .run()
                    .success()
                    .stdout;
            outside("echo b >f").run().success();
            // A stop while git waits for its editor, with other locks of git beside.
            let leave =
                "touch .git/HEAD.lock .git/packed-refs.lock .git/refs/heads/x.lock; echo 38 sandbox >.git/gc.pid; ";
            let hold = "GIT_EDITOR='touch held; sleep 60; :' git commit -a";
            let script = format!(
                "{leave} {}",
                match ending {
                    "itself" => "touch .git/index.lock; touch held; sleep 1",
                    _ => hold,
                }
            );
            let timeout = if ending == "deadline" { &["--timeout", "2s"][..] } else { &[] };
            let script = if holder == "commit" { "touch held; sleep 1" } else { &script };
            let run = exec.command(&[timeout, &["--", "sh", "-c", script]].concat()).start();
            exec.wait_for("held");
            let other = match holder {
                "descriptor" => Some("exec 3>.git/config.lock; touch other; sleep 30"),
                "commit" => Some("GIT_EDITOR='touch other; sleep 30; :' git commit -a"),
                _ => None,
            };
            let other = other.map(|script| outside(script).start());
            if other.is_some() {
                exec.wait_for("other");
            }
            if ending == "killed" {
                run.kill();
            } else {
                drop(run.finish());
            }
            exec.ask(&["--", "true"]);
            let locks = outside("find .git -name cp-keep -prune -o \\( -name '*.lock' -o -name gc.pid \\) -print")
                .run()
                .success()
                .stdout;
            let expected = match holder {
                "nobody" => before.clone(),
                "descriptor" => format!("{before}.git/config.lock\n"),
                _ => format!("{before}.git/index.lock\n"),
            };
            let sorted = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
            assert_eq!(sorted(&locks), sorted(&expected), "{who:?} {ending} {holder}");
            if let Some(other) = other {
                other.kill();
            }
            if holder == "nobody" {
                outside("rm .git/refs/heads/kept.lock; git add f && git commit -qm c && git gc -q").run().success();
            }
        }
    }
}
