//! `/tmp` is an empty directory for each command, or one directory for all commands of a session or run.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::exec::{Exec, POLICY, Who, everyone, policy_with};

/// The directories of sessions below the home.
fn directories(exec: &Exec) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(exec.home.join("state/tmp")).into_iter().flatten();
    all.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn session_tmp_is_private_to_session() {
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("p", "precious");
        for option in ["--run"] {
            let keep = [option, "S-1", "--", "sh", "-c", "cp p /tmp/p.bak && echo x > ~/kept && echo ~"];
            let (answer, status) = exec.ask(&keep);
            assert_eq!((status, &answer["data"]["stdout"]), (0, &"/tmp/home\n".into()), "{who:?}: {answer}");
            let again = [option, "S-1", "--", "sh", "-c", "cat /tmp/p.bak ~/kept"];
            assert_eq!(exec.ask(&again).0["data"]["stdout"], "preciousx\n", "{who:?}");
            // The controls: another session, and no session.
            for others in [&[option, "S-2"][..], &[]] {
                let (answer, status) = exec.ask(&[others, &["--", "cat", "/tmp/p.bak"]].concat());
                assert_eq!(status, 1, "{who:?}: {answer}");
            }
        }
        assert!(!exec.root.join("tmp").exists());
        for directory in directories(&exec) {
            assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700, "{directory:?}");
        }
        assert_eq!(directories(&exec).len(), 2, "{who:?}");
    }
}

#[test]
fn session_tmp_above_project_is_noexec_and_links_are_refused() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let run = |script: &str| exec.ask(&["--run", "S", "--", "sh", "-c", script]).0;
        let script = "printf '#!/bin/sh\\necho ran\\n' > /tmp/x; chmod +x /tmp/x; python3 -c 'import os; os.execv(\"/tmp/x\", [\"x\"])' 2>/dev/null || sh /tmp/x";
        assert_eq!(run(script)["data"]["stdout"], "ran\n", "{who:?}");
        assert_ne!(run("/tmp/x")["ok"], true, "{who:?}: /tmp is noexec");
        let below = exec.root.strip_prefix("/tmp").ok();
        let first = below.unwrap_or(&exec.root).iter().find(|part| *part != "/").unwrap().to_owned();
        run("rm -r /tmp/home; ln -s /etc /tmp/home; ls -d /tmp/*");
        assert_eq!(run("echo runs")["data"]["stdout"], "runs\n", "{who:?}");
        // A command of another project plants a link at the place where this project is mounted.
        let directory = directories(&exec).pop().unwrap();
        fs::remove_dir_all(directory.join(&first)).unwrap_or(());
        std::os::unix::fs::symlink("/etc", directory.join(&first)).unwrap();
        assert_eq!(run("echo runs")["ok"], below.is_none(), "{who:?}");
    }
}

#[test]
fn session_tmp_above_limit_refuses_next_command() {
    for who in everyone() {
        let policy = POLICY.replace("[exec]", "[exec]\nscratch = 1048576");
        let exec = Exec::with_policy(who, &policy);
        let run = |session: &str| {
            exec.ask(&["--run", session, "--", "sh", "-c", "head -c 2000000 /dev/zero > /tmp/x; echo done"])
        };
        let (answer, status) = run("S");
        assert_eq!(status, 0, "{who:?}: {answer}");
        let (answer, status) = run("S");
        assert_eq!((status, &answer["error"]["details"]["rule"]), (4, &json!("session_tmp")), "{who:?}: {answer}");
        assert_eq!(run("T").1, 0, "{who:?}: the control");
    }
}

#[test]
fn file_operation_in_tmp_is_refused_with_hint() {
    let exec = Exec::with_policy(crate::exec::Who::Me, POLICY);
    let write = |path: &str| exec.file(&[], "write_file", &json!({"path": path, "content": "x"}));
    let answer = write("/tmp/log.txt");
    assert!(answer["error"]["message"].as_str().unwrap().contains("write on /tmp/log.txt"), "{answer}");
    assert!(answer["error"]["details"]["hint"].as_str().unwrap().contains("/tmp is its own"), "{answer}");
    assert_eq!(write("log.txt")["ok"], true, "the control");
}

#[test]
fn program_in_tmp_runs_except_under_strict_profile() {
    let exec = Exec::new(Who::Me);
    // Of a project that lies in /tmp nothing else in /tmp is executed.
    let project = tempfile::tempdir_in("/var/tmp").unwrap();
    let line = "printf '#!/bin/sh\necho ran\n' >/tmp/x; chmod +x /tmp/x; cp /bin/echo /tmp/y; /tmp/x && $TMPDIR/y too";
    let ask = |options: &[&str]| {
        let ran = exec.command(&[options, &["-c", line]].concat()).current_dir(project.path()).run();
        ran.records().pop().unwrap()
    };
    for options in [&[][..], &["--run", "S"]] {
        let answer = ask(options);
        assert_eq!(answer["data"]["stdout"], "ran\ntoo\n", "{options:?}: {answer}");
    }
    let beside = "cp /bin/echo y; ./y escaped";
    let ran = exec.command(&["-c", beside]).current_dir(project.path()).run();
    assert!(!ran.stdout.contains("escaped\\n"), "{ran:?}");
    exec.policy(&policy_with("profile = \"strict\""));
    let answer = ask(&[]);
    assert_eq!(answer["ok"], false, "{answer}");
}

/// A file that lies beside a project in `/tmp` would vanish with the directory of the run.
#[test]
fn surroundings_of_project_in_tmp_are_read_only() {
    for who in everyone() {
        let exec = Exec::new(who);
        assert!(exec.root.starts_with("/tmp"), "{}", exec.root.display());
        exec.outside("git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m a")
            .run()
            .success();
        for session in [&[][..], &["--run", "S-1"]] {
            let run = |line: &str| exec.command(&[session, &["--format", "raw", "-c", line]].concat()).run();
            for line in ["echo x >../new", "mkdir -p ../a/b", "git worktree add ../wt", "cp /etc/passwd .."] {
                let ran = run(line);
                assert!(ran.status != 0 && ran.stderr.contains("Read-only file system"), "{who:?} {line}: {ran:?}");
            }
            let control = run("echo x >new && rm new && echo x >/tmp/new && cat /tmp/new && echo x >~/new && ls ..");
            assert_eq!((control.status, control.stdout.as_str()), (0, "x\nwork\n"), "{who:?}: {control:?}");
            assert_eq!(exec.outside("git worktree list | wc -l").run().stdout, "1\n", "{who:?}");
        }
    }
}
