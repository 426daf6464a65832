//! The paths that a repository's settings name, and its hooks.

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
        exec.own_all();
        let read = "cat dev/gitconfig dev/attributes .husky/* scripts/x.sh; ls .husky";
        let before = owner(&exec, read);
        let script = "for f in dev/gitconfig dev/attributes .husky/pre-commit .husky/commit-msg scripts/x.sh scripts/free; do \
                      echo evil > $f; mv $f $f.x; done 2>&1; mv .husky h; mkdir .husky";
        let (answer, _) = exec.ask(&["--", "sh", "-c", script]);
        assert_eq!(owner(&exec, read), before, "{who:?}: {answer}");
        assert_eq!(undone(&answer), [], "{who:?}: {answer}");
        assert_eq!(fs::read_to_string(exec.work.join("scripts/free.x")).unwrap(), "evil\n", "the control");
        // A named path that does not exist cannot be read-only, so it is quarantined if it is created.
        let (answer, status) =
            exec.ask(&["--", "sh", "-c", "echo evil > dev/absent; echo evil > scripts/monitor.sh; echo > dev/other"]);
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
        exec.own_all();
        let commit = |text: &str| exec.ask(&["--", "sh", "-c", &format!("echo {text} > f; git commit -qam {text}")]).1;
        assert_eq!(commit("SECRET"), 1, "{who:?}: the hook refuses");
        assert_eq!(commit("fine"), 0, "{who:?}");
        assert_eq!(owner(&exec, "git log --format=%s; cat ran"), "fine\na\nin\n", "{who:?}");
        assert!(!outside.exists(), "{who:?}: the hook left the sandbox");
    }
}

#[test]
fn linked_working_tree_with_outside_repository_keeps_commits() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        let setup = "git init -q -b main ../main && cd ../main && git config user.name me && git config user.email me@x && git commit -q --allow-empty -m a && \
                     rmdir ../work && git worktree add -q ../work && git worktree add -q ../other";
        trusted(exec.program("sh").args(["-c", setup])).run().success();
        exec.own_all();
        let script = "cd WORK && echo b > b && git add b && git commit -qm b && git status --short; \
                      for f in config hooks/x worktrees/other/HEAD worktrees/work/commondir; do echo evil > ../main/.git/$f; done 2>/dev/null; ls ../main";
        let (answer, _) = exec.ask(&["--", "sh", "-c", &script.replace("WORK", exec.work.to_str().unwrap())]);
        let log = "git log --format=%s && git status --short && git fsck && git -C ../other log --format=%s && grep -c evil ../main/.git/config; \
                   cat ../main/.git/worktrees/other/HEAD";
        assert_eq!(owner(&exec, log), "b\na\na\n0\nref: refs/heads/other\n", "{who:?}: {answer}");
        // A file that leads to a repository which knows nothing of this place gives no way there.
        let strange = exec.root.join("strange");
        trusted(exec.program("git").args(["init", "-q"]).arg(&strange)).run().success();
        exec.work.write("sub/.git", format!("gitdir: {}/.git\n", strange.display()));
        exec.own_all();
        exec.ask(&["--", "sh", "-c", &format!("echo x > {}/.git/planted", strange.display())]);
        assert!(!Path::new(&strange).join(".git/planted").exists());
    }
}

#[test]
fn owner_settings_survive_run_in_submodule() {
    let exec = Exec::new(Who::Me);
    let setup = "git init -q -b main s && git -C s -c user.name=a -c user.email=a@x commit -q --allow-empty -m s && git init -q -b main p && cd p && \
                 git config user.name me && git config user.email me@x && git -c protocol.file.allow=always submodule --quiet add ../s sub && git commit -qm p";
    trusted(exec.program("sh").args(["-c", setup])).run().success();
    let (answer, _) = exec.ask(&[
        "--",
        "sh",
        "-c",
        "cd p/sub && git -c alias.z=config z core.fsmonitor evil; git -c user.name=a -c user.email=a@x commit -q --allow-empty -m t",
    ]);
    assert_eq!(
        owner(&exec, "cd p/sub && git log --format=%s && git config core.fsmonitor || true"),
        "t\ns\n",
        "{answer}"
    );
    let (answer, _) = exec.ask(&[
        "--",
        "sh",
        "-c",
        "perl -MFile::Path=rmtree -e 'rmtree [@ARGV]' p/.git/modules/sub/objects p/.git/modules/sub/refs",
    ]);
    let (preview, _) = exec.ask(&["undo", "last", "--git", "--dry-run"]);
    let token = preview["data"]["confirm_token"].as_str().unwrap_or_else(|| panic!("{preview} {answer}"));
    assert_eq!(exec.ask(&["undo", "last", "--git", "--confirm", token]).1, 0);
    assert_eq!(owner(&exec, "cd p/sub && git fsck && git log --format=%s"), "t\ns\n");
}
