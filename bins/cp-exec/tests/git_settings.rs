//! The paths that a repository's settings name, its hooks, and names that a run must not give a file of its own.

use std::fs;
use std::path::Path;

use crate::exec::{Exec, POLICY, Who, everyone};
use crate::guard::{owner, repository, trusted, undone};

#[test]
fn paths_in_git_settings_are_read_only() {
    const SETUP: &str = "mkdir dev .husky scripts && echo '[user] name = x' > dev/gitconfig && echo '* text' > dev/attributes && echo old > .husky/pre-commit && \
        echo old > scripts/x.sh && echo old > scripts/free && chmod +x scripts/x.sh && ln -s ../../scripts/x.sh .git/hooks/pre-push && \
        git config core.hooksPath .husky && git config include.path ../dev/gitconfig && git config 'includeIf.gitdir:/w.path' ../dev/absent && \
        git config core.attributesFile dev/attributes && git config core.fsmonitor scripts/monitor.sh";
    for who in everyone() {
        let exec = repository(who);
        owner(&exec, SETUP);
        let read = "cat dev/gitconfig dev/attributes .husky/* scripts/x.sh; ls .husky";
        let before = owner(&exec, read);
        let script = "for f in dev/gitconfig dev/attributes .husky/pre-commit .husky/commit-msg scripts/x.sh scripts/free; do \
                      echo evil > $f; mv $f $f.x; done 2>&1; mv .husky h; mkdir .husky";
        let (answer, _) = exec.sh(script);
        assert_eq!(owner(&exec, read), before, "{who:?}: {answer}");
        assert_eq!(undone(&answer), [], "{who:?}: {answer}");
        assert_eq!(fs::read_to_string(exec.work.join("scripts/free.x")).unwrap(), "evil\n", "the control");
        // A named path that does not exist cannot be read-only, so it is quarantined if it is created.
        let (answer, status) = exec.sh("echo evil > dev/absent; echo evil > scripts/monitor.sh; echo > dev/other");
        assert_eq!((status, undone(&answer).len()), (4, 2), "{who:?}: {answer}");
        assert!(!exec.work.join("dev/absent").exists() && exec.work.join("dev/other").exists());
    }
}

#[test]
fn owner_hooks_run_inside_sandbox() {
    for who in everyone() {
        let exec = repository(who);
        let outside = exec.root.join("outside");
        let hook =
            format!("#!/bin/sh\\necho in > ran; echo out > {} 2>/dev/null; ! grep -q SECRET f\\n", outside.display());
        owner(&exec, &format!("printf '{hook}' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit"));
        let commit = |text: &str| exec.sh(&format!("echo {text} > f; git commit -qam {text}")).1;
        assert_eq!(commit("SECRET"), 1, "{who:?}: the hook refuses");
        assert_eq!(commit("fine"), 0, "{who:?}");
        assert_eq!(owner(&exec, "git log --format=%s; cat ran"), "fine\na\nin\n", "{who:?}");
        assert!(!outside.exists(), "{who:?}: the hook left the sandbox");
    }
}

#[test]
fn maintenance_of_git_is_done_when_its_command_ends() {
    for who in everyone() {
        let exec = repository(who);
        // Git estimates the number of loose objects from one of 256 directories.
        owner(&exec, "git config gc.auto 1 && for i in $(seq 1500); do echo $i >n$i; done && git add .");
        assert_eq!(owner(&exec, "ls .git/objects/pack"), "", "{who:?}");
        let (answer, status) = exec.sh("git commit -qm b; sleep 0.1");
        assert_eq!(status, 0, "{who:?}: {answer}");
        assert!(!answer.to_string().contains("still running"), "{who:?}: {answer}");
        let left = owner(&exec, "ls .git/objects/pack | grep -c 'pack$'; ls .git | grep '^gc'; git gc -q && git fsck");
        assert_eq!(left, "1\n", "{who:?}");
    }
}

#[test]
fn linked_working_tree_with_outside_repository_keeps_commits() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        let setup = "git init -q -b main ../main && cd ../main && git config user.name me && git config user.email me@x && git commit -q --allow-empty -m a && \
                     rmdir ../work && git worktree add -q ../work && git worktree add -q ../other";
        trusted(exec.program("sh").args(["-c", setup])).run().success();
        let script = "cd WORK && echo b > b && git add b && git commit -qm b && git status --short; \
                      for f in config hooks/x worktrees/other/HEAD worktrees/work/commondir; do echo evil > ../main/.git/$f; done 2>/dev/null; ls ../main";
        let (answer, _) = exec.sh(&script.replace("WORK", exec.work.to_str().unwrap()));
        let log = "git log --format=%s && git status --short && git fsck && git -C ../other log --format=%s && grep -c evil ../main/.git/config; \
                   cat ../main/.git/worktrees/other/HEAD";
        assert_eq!(owner(&exec, log), "b\na\na\n0\nref: refs/heads/other\n", "{who:?}: {answer}");
        // A file that leads to a repository which knows nothing of this place gives no way there.
        let strange = exec.root.join("strange");
        trusted(exec.program("git").args(["init", "-q"]).arg(&strange)).run().success();
        exec.work.write("sub/.git", format!("gitdir: {}/.git\n", strange.display()));
        exec.sh(&format!("echo x > {}/.git/planted", strange.display()));
        assert!(!Path::new(&strange).join(".git/planted").exists());
    }
}

#[test]
fn owner_settings_survive_run_in_submodule() {
    let exec = Exec::new(Who::Me);
    let setup = "git init -q -b main s && git -C s -c user.name=a -c user.email=a@x commit -q --allow-empty -m s && git init -q -b main p && cd p && \
                 git config user.name me && git config user.email me@x && git -c protocol.file.allow=always submodule --quiet add ../s sub && git commit -qm p";
    trusted(exec.program("sh").args(["-c", setup])).run().success();
    let (answer, _) = exec.sh("cd p/sub && git -c alias.z=config z core.fsmonitor evil; git -c user.name=a -c user.email=a@x commit -q --allow-empty -m t");
    assert_eq!(
        owner(&exec, "cd p/sub && git log --format=%s && git config core.fsmonitor || true"),
        "t\ns\n",
        "{answer}"
    );
    exec.sh("perl -MFile::Path=rmtree -e 'rmtree [@ARGV]' p/.git/modules/sub/objects p/.git/modules/sub/refs");
    exec.confirmed(&["undo", "last", "--git"]);
    assert_eq!(owner(&exec, "cd p/sub && git fsck && git log --format=%s"), "t\ns\n");
}

#[test]
fn agent_that_redirects_git_is_ended_and_said_why() {
    for who in everyone() {
        for (change, is_ended) in [
            ("echo ../../other >.git/commondir", true),
            ("printf ./ >c && perl -e 'rename shift, shift' c .git/commondir && echo ../other >.git/commondir", true),
            ("ln -s ../other .git/commondir", true),
            ("echo other >.git/other", false),
        ] {
            let exec = repository(who);
            let line = format!("ls .git/commondir; {change}; sleep 5; touch ended");
            let line = if is_ended { line } else { line.replace("sleep 5", "sleep 0.2") };
            let ran = exec.command(&["agent", "--", "sh", "-c", &line]).run();
            assert_eq!(ran.stdout, "", "{who:?} {change}: nothing is planted: {ran:?}");
            assert_eq!(exec.work.join("ended").exists(), !is_ended, "{who:?} {change}: {ran:?}");
            assert_eq!(ran.stderr.contains("was ended: it made"), is_ended, "{who:?} {change}: {ran:?}");
            assert_eq!(ran.stderr.contains("ended (guard)"), is_ended, "{who:?} {change}: {ran:?}");
            assert!(exec.work.join(".git/commondir").symlink_metadata().is_err(), "{who:?} {change}");
            assert_eq!(owner(&exec, "git log --format=%s"), "a\n");
        }
    }
}

#[test]
fn links_under_known_temporary_names_are_not_followed() {
    for who in everyone() {
        let exec = repository(who);
        let out = exec.root.join("out");
        fs::write(&out, "mine\n").unwrap();
        let names = "config.cp-exec .cp-exec config.lock.cp-exec config.tmp .new state.json.cp-exec";
        let line =
            format!("for n in {names}; do ln -s {} .git/$n; ln -s {0} $n; done; touch began; sleep 1", out.display());
        let run = exec.command(&["--", "sh", "-c", &line]).start();
        exec.wait_for("began");
        owner(&exec, "git config user.name you");
        run.finish();
        assert_eq!(fs::read_to_string(&out).unwrap(), "mine\n", "{who:?}");
        assert!(!exec.work.join(".git/config").is_symlink(), "{who:?}");
        assert_eq!(owner(&exec, "git config user.name"), "you\n", "{who:?}");
    }
}
