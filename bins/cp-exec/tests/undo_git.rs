//! `undo --git`: the history of a repository is as it was before a run.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::exec::{Exec, Who, everyone};
use crate::guard::{owner, repository};

/// Undoes a run together with its repositories.
fn undo(exec: &Exec, run: &str) -> Value {
    exec.confirmed(&["undo", run, "--git"])
}

/// The number of a run.
fn number(answer: &Value) -> String {
    let receipt = answer["data"]["receipt"]["seq"].as_u64().unwrap_or_else(|| panic!("{answer}"));
    receipt.to_string()
}

/// Commands whose output shows if the history is intact.
const LOOK: &str = "git fsck 2>&1 | grep -v ^notice; git log --format=%s; git branch --format='%(refname:short)'; git tag; git stash list | wc -l; \
                    git status --short; git reflog | wc -l";

/// A repository with loose objects, a pack, a stash, a branch and a tag, one of them packed.
fn with_history(who: Who) -> Exec {
    let exec = repository(who);
    let line = "echo b > b && git add b && git commit -qm b && git branch side && git tag t && git gc -q && echo c > c && git add c && git commit -qm c && \
                echo s >> f && git stash -q && echo staged > d && git add d && mkdir -p empty/.git";
    owner(&exec, line);
    exec
}

#[test]
fn destroyed_history_is_restored() {
    const DAMAGE: [&str; 6] = [
        "perl -MFile::Path=rmtree -e 'rmtree [@ARGV]' .git/objects .git/refs",
        "perl -MFile::Path=rmtree -e 'rmtree [@ARGV]' .git/objects .git/refs .git/HEAD .git/index .git/packed-refs .git/logs",
        "find .git/objects -type f | while read f; do chmod u+w $f; : > $f; done",
        "find .git/objects -type f | while read f; do chmod u+w $f; echo evil > $f; done",
        "find .git/objects -type f | while read f; do chmod u+w $f; printf x | dd of=$f bs=1 seek=12 conv=notrunc 2>/dev/null; done",
        "echo 0000000000000000000000000000000000000001 > .git/refs/heads/main; : > .git/index; echo x > .git/HEAD",
    ];
    for who in everyone() {
        for damage in DAMAGE {
            let exec = with_history(who);
            let before = owner(&exec, LOOK);
            let (damaged, _) = exec.sh(&format!("{damage}; true"));
            let broken = exec.program("sh").args(["-c", LOOK]).run();
            assert_ne!(broken.stdout, before, "the control: {damage}");
            // Another run must not make what is kept worse.
            exec.ask(&["--", "true"]);
            let undone = undo(&exec, &number(&damaged));
            assert_eq!(owner(&exec, LOOK), before, "{who:?} {damage}: {undone}");
            let entry = exec.entries("exec.changes").pop().unwrap();
            let files = undone["files"].as_array().unwrap().iter().map(|file| &file["path"]);
            assert!(
                entry["data"]["history"].as_array().unwrap().iter().all(|path| files.clone().any(|file| file == path))
            );
        }
    }
}

#[test]
fn references_are_as_before_run_and_logs_keep_lines() {
    let exec = with_history(Who::Me);
    owner(&exec, "git branch old; git branch gone; git branch cp-keep; git branch tmp_x");
    exec.ask(&["--", "true"]);
    owner(&exec, "git branch -D gone");
    let look = "git for-each-ref; git symbolic-ref HEAD; git stash list; git status --short";
    let before = owner(&exec, look);
    let line = "git commit -qm x; git -c alias.b=branch b -qf old main; git checkout -qb new; git commit -q --allow-empty -m y; : > .git/refs/heads/cp-keep; \
                git tag t1; git tag -am z a/t2; git notes add -m n; echo s > f; git stash -q";
    let (answer, _) = exec.ask(&["-c", line]);
    assert_ne!(owner(&exec, look), before, "the control: {answer}");
    let (preview, _) = exec.ask(&["undo", "last", "--git", "--dry-run"]);
    for name in ["heads/new", "tags/t1", "tags/a/t2", "notes/commits"] {
        assert!(preview.to_string().contains(&format!("refs/{name}")), "{preview}");
    }
    undo(&exec, "last");
    assert_eq!(owner(&exec, look), before);
    // The log of a reference keeps what the run did, so that its commits can be found.
    assert!(owner(&exec, "git reflog -2 --format=%gs main").contains("commit: x"));
    let (nothing, _) = exec.ask(&["undo", "last", "--git"]);
    assert_eq!(nothing["data"]["receipt"], Value::Null, "{nothing}");
}

#[test]
fn history_of_killed_run_is_put_back() {
    let exec = with_history(Who::Me);
    let before = owner(&exec, LOOK);
    let run = exec
        .command(&["-c", "perl -MFile::Path=rmtree -e 'rmtree [@ARGV]' .git/refs .git/objects; touch done; sleep 60"])
        .start();
    exec.wait_for("done");
    run.kill();
    exec.ask(&["--", "true"]);
    let killed = exec.entries("exec.intent")[0]["seq"].to_string();
    fs::remove_file(exec.work.join("done")).unwrap();
    undo(&exec, &killed);
    assert_eq!(owner(&exec, LOOK), before);
}

#[test]
fn kept_history_is_inaccessible_in_run() {
    for who in everyone() {
        let exec = with_history(who);
        exec.ask(&["--", "true"]);
        let kept = exec.home.join("state/kept/packs");
        let size = || fs::read_dir(&kept).unwrap().map(|pack| pack.unwrap().metadata().unwrap().len()).sum::<u64>();
        let before = size();
        let script = format!(
            "for at in .git/cp-keep {}; do ls $at; echo x > $at/x; rm -rf $at/*; rmdir $at; \
             perl -e 'exit !rename shift, shift' $at x && echo moved; done; touch .git/control",
            kept.display()
        );
        assert_eq!(exec.inside(&script)["stdout"], "", "{who:?}");
        assert!(exec.work.join(".git/control").exists() && !exec.work.join(".git/cp-keep/x").exists());
        assert!(before > 1000 && size() >= before, "{before}");
    }
}

#[test]
fn unchanged_repository_is_kept_once() {
    let exec = repository(Who::Me);
    let kept = || {
        assert_eq!(exec.ask(&["--", "true"]).1, 0);
        let paths = |part: &str| fs::read_dir(exec.home.join("state/kept").join(part)).unwrap();
        let names = |part| paths(part).map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>();
        [names("packs"), names("trees")]
    };
    let first = kept();
    // A file that was just written could change without other times, so it is read again for a while.
    thread::sleep(Duration::from_millis(2100));
    let settled = kept();
    assert_eq!(kept(), settled, "after {first:?}");
    // The control.
    owner(&exec, "git commit -q --allow-empty -m new");
    assert_ne!(kept(), settled);
}
