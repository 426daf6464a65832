//! What a run could leave behind that runs later: it is read-only, or gone when the result is reported.

use std::fs;
use std::path::Path;

use cp_testkit::Program;
use serde_json::Value;

use crate::exec::{Exec, Who, everyone};

pub(crate) fn trusted(program: Program) -> Program {
    let program = program.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory");
    program.env("GIT_CONFIG_VALUE_0", "*")
}

/// A project with a repository that has one commit.
pub(crate) fn repository(who: Who) -> Exec {
    let exec = Exec::new(who);
    let setup = "git init -q -b main . && git config user.name me && git config user.email me@x && echo a > f && git add f && git commit -qm a";
    trusted(exec.program("sh").args(["-c", setup])).run().success();
    exec.own_all();
    exec
}

/// What git says outside, as the owner would ask it.
pub(crate) fn owner(exec: &Exec, line: &str) -> String {
    trusted(exec.program("sh").args(["-c", line])).run().success().stdout
}

pub(crate) fn undone(answer: &Value) -> Vec<(String, String)> {
    let details = if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] };
    let guard = details["enforcement"]["guard"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    guard.iter().map(|undone| (text(&undone["path"]), text(&undone["moved_to"]))).collect()
}

#[test]
fn work_in_a_repository_is_the_owners() {
    for who in everyone() {
        let exec = repository(who);
        let script = "echo b > f && git commit -qam b && git tag t && git branch side && git branch side/x 2>/dev/null; \
                      git checkout -q side && echo c > g && git add g && git commit -qm c && git checkout -q main && \
                      git merge -q side && git branch -q -d side && git branch side/x && git gc -q && git stash list && git status --short";
        let (answer, status) = exec.ask(&["--", "sh", "-c", script]);
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        assert_eq!(
            owner(
                &exec,
                "git fsck --strict 2>&1; git log --format=%s; git branch --format='%(refname:short)'; git tag; git status --short"
            ),
            "c\nb\na\nmain\nside/x\nt\n"
        );
        // A second run begins where the first ended, and undoes it.
        let (answer, status) =
            exec.ask(&["--", "sh", "-c", "git reset -q --hard HEAD~1 && git tag -d t && git branch -D side/x"]);
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        assert_eq!(
            owner(&exec, "git log --format=%s; git tag; git branch --format='%(refname:short)'"),
            "b\na\nmain\n"
        );
    }
}

#[test]
fn what_names_programs_in_a_repository_is_read_only() {
    const EVIL: &str = "printf '#!/bin/sh\\ntouch OUT/ran\\n' > evil; chmod +x evil; \
        git config core.fsmonitor WORK/evil; printf '[core]\\nfsmonitor = WORK/evil\\n' >> .git/config; \
        cp evil .git/hooks/post-checkout; cp evil .git/hooks/post-index-change; \
        mkdir other; printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = WORK/evil\\n' > other/config; echo WORK/other > .git/commondir; \
        echo x > .git/config.worktree; printf '* filter=x\\n' > .git/info/attributes; echo WORK/other > .git/objects/info/alternates; \
        for f in hooks info objects config; do perl -e 'rename shift, shift' .git/$f x$f; done; perl -e 'rename shift, shift' .git .g2; rm -f .git/config; ln -sf ../evil .git/config; touch fine";
    const LATER: &str = "git status --short >/dev/null 2>&1; git checkout -q -b later 2>/dev/null; ls OUT";
    const PARTS: &str = "cat .git/config; ls -A .git/hooks .git/info .git/objects/info .git";
    for who in everyone() {
        let exec = repository(who);
        let with = |text: &str| {
            text.replace("WORK", exec.work.to_str().unwrap()).replace("OUT", exec.root.join("out").to_str().unwrap())
        };
        fs::create_dir(exec.root.join("out")).unwrap();
        fs::create_dir(exec.work.join(".git/cp-keep")).unwrap();
        exec.own_all();
        let before = owner(&exec, PARTS);
        let (answer, status) = exec.ask(&["--", "sh", "-c", &with(EVIL)]);
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        assert!(exec.work.join("fine").exists(), "the script ran to its end");
        assert_eq!(owner(&exec, PARTS), before, "{who:?}");
        assert_eq!(owner(&exec, &with(LATER)), "", "{who:?}: something of the run ran later");
        // The control: outside the sandbox the same runs when the owner looks.
        let evil = with(EVIL).split("for f in").next().unwrap().to_owned();
        trusted(exec.program("sh").args(["-c", &evil])).run();
        fs::remove_file(exec.work.join(".git/commondir")).unwrap();
        assert_eq!(owner(&exec, &with(LATER)), "ran\n", "the control did not run");
    }
}

#[test]
fn names_that_a_run_makes_are_in_quarantine_before_the_result_is_told() {
    const NAMES: [&str; 12] = [
        ".bashrc",
        ".envrc",
        ".mcp.json",
        ".npmrc",
        ".vscode/tasks.json",
        ".claude/settings.json",
        ".idea/workspace.xml",
        ".ssh/authorized_keys",
        "sub/deep/.profile",
        "sub/.git/config",
        "sub/.git/hooks/post-checkout",
        "bare/config",
    ];
    const ORDINARY: [&str; 6] = [
        "Makefile",
        "package.json",
        "build.rs",
        "conftest.py",
        ".gitattributes",
        "node_modules/p/.vscode/settings.json",
    ];
    for who in everyone() {
        let exec = Exec::new(who);
        let make = NAMES.iter().chain(&ORDINARY).chain(&["bare/HEAD", "bare/objects/x", "bare/refs/x"]);
        let lines: Vec<String> = make.map(|name| format!("mkdir -p $(dirname {name}); echo x > {name}")).collect();
        let script = lines.join("; ");
        let (answer, status) = exec.ask(&["--", "sh", "-c", &script]);
        assert_eq!((status, &answer["error"]["code"]), (4, &"E_FORBIDDEN".into()), "{who:?}: {answer}");
        let details = &answer["error"]["details"];
        assert_eq!((&details["rule"], &details["guard"]), (&"guard".into(), &"after".into()), "{answer}");
        let undone = undone(&answer);
        for name in NAMES {
            assert!(!exec.work.join(name).exists(), "{who:?}: {name} stayed");
            let above = |path: &str| exec.work.join(name).starts_with(path);
            let (_, kept) = undone.iter().find(|(path, _)| above(path)).unwrap_or_else(|| panic!("{name}: {answer}"));
            assert!(Path::new(kept).exists(), "{kept}");
        }
        for name in ORDINARY {
            assert!(exec.work.join(name).exists(), "{who:?}: {name} is an ordinary file");
        }
        let entry = exec.entries("exec.result").pop().unwrap();
        assert_eq!(entry["data"]["enforcement"]["guard"].as_array().unwrap().len(), undone.len());
        // The control: a run that leaves nothing of the kind behind.
        assert_eq!(exec.ask(&["--", "sh", "-c", "mkdir x && touch x/.keep"]).1, 0);
    }
}

#[test]
fn names_that_are_there_are_read_only_at_any_depth_also_when_they_are_moved_and_made_again() {
    for who in everyone() {
        let exec = Exec::new(who);
        for name in [".bashrc", "a/b/.envrc", "a/.vscode/tasks.json"] {
            exec.write(name, "mine\n");
        }
        let script = "for f in .bashrc a/b/.envrc a/.vscode/tasks.json; do echo evil > $f; rm -f $f; mv $f x; done; \
                      mv a a2 && mkdir -p a/b && echo evil > a/b/.envrc; echo fine > ordinary";
        exec.ask(&["--", "sh", "-c", script]);
        for name in [".bashrc", "a/b/.envrc", "a/.vscode/tasks.json"] {
            assert_eq!(fs::read_to_string(exec.work.join(name)).unwrap(), "mine\n", "{who:?}: {name}");
        }
        assert!(exec.work.join("ordinary").exists(), "the control");
    }
}

#[test]
fn a_rebase_that_would_run_a_command_when_it_goes_on_is_moved_away() {
    let exec = repository(Who::Me);
    let begin =
        |line: &str| format!("mkdir -p .git/rebase-merge && printf '{line}\\n' > .git/rebase-merge/git-rebase-todo");
    let (answer, _) = exec.ask(&["--", "sh", "-c", &begin("pick abc\\nexec touch ran")]);
    assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{answer}");
    assert!(!exec.work.join(".git/rebase-merge").exists());
    let (answer, status) = exec.ask(&["--", "sh", "-c", &begin("pick abc")]);
    assert_eq!(status, 0, "the control: {answer}");
    assert!(exec.work.join(".git/rebase-merge/git-rebase-todo").exists());
}

#[test]
fn a_file_operation_does_not_write_guarded_names_either() {
    let exec = Exec::new(Who::Me);
    fs::create_dir_all(exec.work.join(".git")).unwrap();
    fs::create_dir_all(exec.work.join("sub")).unwrap();
    let write = |path: &str| {
        let request = format!(
            r#"{{"tool":"filesystem","operation":"write_file","arguments":{{"path":"{path}","content":"x"}}}}"#
        );
        exec.answers(&[], &request).0[0].clone()
    };
    for path in [".bashrc", "sub/.envrc", ".git/config", ".git/commondir", "sub/.npmrc"] {
        assert_eq!(write(path)["error"]["details"]["rule"], "protected", "{path}");
        assert!(!exec.work.join(path).exists(), "{path}");
    }
    assert_eq!(write("sub/Makefile")["ok"], true, "the control");
}

#[test]
fn settings_of_a_repository_are_the_owners() {
    for who in everyone() {
        let exec = repository(who);
        for words in [
            &["config", "user.name", "somebody"][..],
            &["config", "core.fsmonitor", "evil"],
            &["remote", "add", "origin", "https://example.org/a.git"],
        ] {
            let (answer, status) = exec.ask(&[&["--", "git"], words].concat());
            assert_eq!((status, undone(&answer)), (1, Vec::new()), "{who:?} {words:?}: {answer}");
        }
        assert_eq!(exec.ask(&["--", "git", "checkout", "-q", "-b", "topic", "main"]).1, 0, "the control");
        assert_eq!(owner(&exec, "git config user.name; git remote; git branch --show-current"), "me\ntopic\n");
    }
}

#[test]
fn a_directory_that_can_be_gone_through_but_not_read_hides_no_repository() {
    let exec = repository(*everyone().last().unwrap());
    let script = "mkdir -p d/.git && echo x > d/.git/config && chmod 311 d";
    let (answer, _) = exec.ask(&["--", "sh", "-c", script]);
    assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{answer}");
    assert!(!exec.work.join("d/.git/config").exists());
}

#[test]
fn a_repository_that_the_policy_keeps_pristine_is_not_written() {
    for who in everyone() {
        let exec = repository(who);
        let commit = ["--", "git", "commit", "-q", "--allow-empty", "-m", "b"];
        assert_eq!(exec.ask(&commit).1, 0, "the control");
        let policy = fs::read_to_string(exec.home.join("config/policy.toml")).unwrap();
        for paths in ["pristine = [\".git\"]", "forbidden = [\".git\"]"] {
            let policy = format!("{policy}\n[paths]\n{paths}\n");
            fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
            assert_ne!(exec.ask(&commit).1, 0, "{who:?} {paths}");
            assert_eq!(owner(&exec, "git log --format=%s"), "b\na\n", "{who:?} {paths}");
        }
    }
}
