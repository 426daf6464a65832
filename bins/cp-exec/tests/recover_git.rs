//! The history of a repository from before a run is brought back after it.

use std::fs;
use std::time::Instant;

use serde_json::Value;

use crate::exec::{Exec, Who, everyone};
use crate::guard::{owner, repository};

/// Brings the history back, as the dry run says.
fn recover(exec: &Exec, words: &[&str]) -> Value {
    let words = [&["recover-git", "."], words].concat();
    let (preview, _) = exec.ask(&[&words[..], &["--dry-run"]].concat());
    let token = preview["data"]["confirm_token"].as_str().unwrap_or_else(|| panic!("{preview}"));
    let (answer, status) = exec.ask(&[&words[..], &["--confirm", token]].concat());
    assert_eq!(status, 0, "{answer}");
    answer["data"].clone()
}

/// Commands whose output shows if the history is intact.
const LOOK: &str = "git fsck 2>&1 | grep -v ^notice; git log --format=%s; git branch --format='%(refname:short)'; git tag; git stash list | wc -l; \
                    git status --short; git reflog | wc -l";

/// A repository with loose objects, a pack, a stash, a branch and a tag, one of them packed.
fn with_history(who: Who) -> Exec {
    let exec = repository(who);
    let line = "echo b > b && git add b && git commit -qm b && git branch side && git tag t && git gc -q && echo c > c && git add c && git commit -qm c && \
                echo s >> f && git stash -q && echo staged > d && git add d";
    owner(&exec, line);
    exec.own_all();
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
            exec.ask(&["--", "sh", "-c", damage]);
            let broken = exec.program("sh").args(["-c", LOOK]).run();
            assert_ne!(broken.stdout, before, "the control: {damage}");
            // Another run must not make what is kept worse.
            exec.ask(&["--", "true"]);
            let recovered = recover(&exec, &[]);
            assert_eq!(owner(&exec, LOOK), before, "{who:?} {damage}: {recovered}");
            assert_eq!(exec.entries("git.recover").len(), 1);
            assert_eq!(exec.ask(&["recover-git", "."]).0["data"]["objects"], 0, "nothing is left to do");
        }
    }
}

#[test]
fn newer_references_are_restored_only_on_request() {
    let exec = with_history(Who::Me);
    let (old, _) = (owner(&exec, "git rev-parse main"), exec.ask(&["--", "true"]));
    owner(&exec, "git commit -qm new");
    exec.ask(&["--", "sh", "-c", "perl -MFile::Path=rmtree -e 'rmtree [@ARGV]' .git/objects/pack"]);
    recover(&exec, &[]);
    assert_eq!(owner(&exec, "git log -1 --format=%s"), "new\n");
    let snapshots: Vec<_> = fs::read_dir(exec.work.join(".git/cp-keep/snapshots")).unwrap().flatten().collect();
    let oldest = snapshots.iter().map(|entry| entry.file_name().into_string().unwrap()).min().unwrap();
    recover(&exec, &["--snapshot", &oldest, "--refs"]);
    assert_eq!(owner(&exec, "git rev-parse main"), old);
    assert_eq!(exec.ask(&["recover-git", ".", "--snapshot", "1"]).0["error"]["code"], "E_NOT_FOUND");
    assert_eq!(exec.ask(&["recover-git", "/"]).0["error"]["code"], "E_NOT_FOUND");
}

#[test]
fn kept_history_is_inaccessible_in_run() {
    for who in everyone() {
        let exec = with_history(who);
        exec.ask(&["--", "true"]);
        let script = "ls .git/cp-keep/kept; echo x > .git/cp-keep/x; rm -rf .git/cp-keep/*; rmdir .git/cp-keep; \
                      perl -e 'exit !rename shift, shift' .git/cp-keep x && echo moved; touch .git/control";
        let out = exec.inside(script)["stdout"].to_string();
        assert_eq!(out, "\"\"", "{who:?}");
        assert!(exec.work.join(".git/control").exists());
        assert!(
            exec.work.join(".git/cp-keep/kept/objects/pack").exists() && !exec.work.join(".git/cp-keep/x").exists()
        );
    }
}

#[test]
fn unchanged_repository_gets_no_snapshot() {
    let exec = with_history(Who::Me);
    let count = || fs::read_dir(exec.work.join(".git/cp-keep/snapshots")).unwrap().count();
    exec.ask(&["--", "true"]);
    exec.ask(&["--", "true"]);
    assert_eq!(count(), 1);
    for _ in 0..14 {
        exec.ask(&["--", "git", "commit", "-q", "--allow-empty", "-m", "x"]);
    }
    // The newest ten, and the newest of today's older ones.
    assert_eq!(count(), 11);
}

#[test]
fn unchanged_repository_is_kept_quickly() {
    let exec = repository(Who::Me);
    owner(
        &exec,
        "perl -e 'for (1..5000) { printf qq(blob\\ndata %d\\n%s\\n), length, $_ }' | git fast-import --quiet && mv .git/objects/pack/*.pack p && \
         rm -f .git/objects/pack/* && git unpack-objects -q < p && rm p",
    );
    let objects = owner(&exec, "find .git/objects -type f | wc -l").trim().parse::<usize>().unwrap();
    assert!(objects >= 5000, "{objects}");
    let time = || {
        let begun = Instant::now();
        assert_eq!(exec.ask(&["--", "true"]).1, 0);
        begun.elapsed()
    };
    let first = time();
    let later = (0..5).map(|_| time()).min().unwrap();
    println!("{objects} objects: the first run {first:?}, a later one {later:?}");
    assert!(later < first, "{later:?} and {first:?}");
}
