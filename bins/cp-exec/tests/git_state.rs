//! The state that git keeps of an interrupted operation, and linked working trees: what git writes stays, whoever made
//! it; anything else is in quarantine as a whole.

use crate::exec::{everyone, rows};
use crate::guard::{owner, repository, undone};

/// Stops an operation at a conflict.
const REBASE: &str = "git checkout -qb o && echo o >f && git commit -qam o && git checkout -q main && echo m >f && \
                      git commit -qam m && git rebase OPTIONS o >/dev/null 2>&1; test -d .git/rebase-merge";
const PICK: &str = "git checkout -qb o && echo o >f && git commit -qam o && echo p >f && git commit -qam p && \
                    git checkout -q main && echo m >f && git commit -qam m && git cherry-pick OPTIONS o~1 o >/dev/null 2>&1; \
                    test -d .git/sequencer";
const APPLY: &str = "git checkout -qb o && echo o >f && git commit -qam o && git checkout -q main && echo m >f && \
                     git commit -qam m && git rebase --apply OPTIONS o >/dev/null 2>&1; test -d .git/rebase-apply";

const STOPS: [(&str, &str); 3] = [("REBASE", REBASE), ("PICK", PICK), ("APPLY", APPLY)];

#[test]
fn state_that_git_writes_stays() {
    let resolve = |with: &str| format!("echo {with} >f && git add f && GIT_EDITOR=true git");
    for who in everyone() {
        for (script, options, finish) in [
            (REBASE, "", "rebase --continue"),
            (REBASE, "-s recursive -X find-renames=50% -X patience --rebase-merges", "rebase --continue"),
            (REBASE, "--autosquash --signoff --committer-date-is-author-date", "rebase --continue"),
            (APPLY, "--ignore-whitespace", "rebase --continue"),
            (PICK, "", "cherry-pick --continue"),
            (PICK, "-x -s --strategy ort -X no-renames", "cherry-pick --continue"),
        ] {
            let exec = repository(who);
            let script = script.replace("OPTIONS", options);
            let (answer, status) = exec.sh(&script);
            assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?} {script}: {answer}");
            let again = format!("{{ {} {finish}; }}", resolve("s"));
            owner(&exec, &format!("{} {finish} >/dev/null 2>&1 || {again}", resolve("r")));
            assert_eq!(owner(&exec, "ls -d .git/rebase-* .git/sequencer 2>/dev/null; true"), "", "{who:?} {script}");
        }
    }
}

#[test]
fn state_that_git_does_not_write_is_quarantined() {
    for who in everyone() {
        for [script, state, change] in rows(include_str!("data/git/foreign-state.tsv")) {
            let script = STOPS.iter().find(|(name, _)| *name == script).unwrap().1;
            let exec = repository(who);
            let script = format!("{}; {change}", script.replace("OPTIONS", ""));
            let (answer, status) = exec.sh(&script);
            let path = exec.work.join(".git").join(state).display().to_string();
            let paths: Vec<String> = undone(&answer).into_iter().map(|(path, _)| path).collect();
            assert_eq!((status, paths), (4, vec![path]), "{who:?} {change}: {answer}");
            assert!(!exec.work.join(".git").join(state).exists());
        }
    }
}

#[test]
fn linked_working_tree_of_run_stays_unless_it_has_more() {
    for who in everyone() {
        for (change, is_kept) in [
            ("true", true),
            ("cd more && echo c >c && git add c && git commit -qm c", true),
            ("echo '[core]' >.git/worktrees/more/config.worktree", false),
            ("echo ../../../evil >.git/worktrees/more/commondir", false),
            ("mkdir .git/worktrees/more/hooks", false),
            ("mkdir .git/worktrees/more/rebase-merge; echo evil >.git/worktrees/more/rebase-merge/strategy", false),
        ] {
            let exec = repository(who);
            let (answer, status) = exec.sh(&format!("git worktree add -q more 2>/dev/null; {change}"));
            assert_eq!((status == 0, undone(&answer).is_empty()), (is_kept, is_kept), "{who:?} {change}: {answer}");
            assert_eq!(exec.work.join(".git/worktrees/more").exists(), is_kept);
            if is_kept {
                assert_eq!(owner(&exec, "git -C more status --short -b"), "## more\n");
            }
        }
    }
}

/// Ways to exchange an object or a reference behind the back of git, and a command that shows the effect.
#[test]
fn references_that_replace_objects_do_not_stay() {
    const MAKE: &str = "echo evil >f && git add f && T=$(git write-tree) && O=$(git rev-parse HEAD^{tree}) && git -c alias.z=reset z -q --hard && ";
    for who in everyone() {
        for (script, is_packed) in [
            ("git replace $O $T", false),
            ("mkdir -p .git/refs/replace; echo $T >.git/refs/replace/$O", false),
            ("echo $T refs/replace/$O >>.git/packed-refs", true),
        ] {
            let exec = repository(who);
            owner(&exec, "git branch side && git update-ref refs/pull/1 HEAD && git pack-refs --all");
            let before = owner(&exec, "git for-each-ref");
            let (answer, status) = exec.sh(&format!("{MAKE}{script}"));
            assert!(status != 0, "{who:?} {script}: {answer}");
            assert_eq!(undone(&answer).len(), usize::from(is_packed), "{who:?} {script}: {answer}");
            assert_eq!(owner(&exec, "git for-each-ref"), before, "{who:?} {script}");
            // The control: made outside, the reference has its effect.
            let told = owner(&exec, &format!("{MAKE}{script}; git show HEAD:f"));
            assert_eq!(told, "evil\n", "{script}");
        }
        // Packing the owner's own references is ordinary work.
        let exec = repository(who);
        owner(&exec, "git update-ref refs/pull/1 HEAD");
        let (answer, status) = exec.ask(&["--", "git", "pack-refs", "--all"]);
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        assert!(owner(&exec, "git for-each-ref").contains("refs/pull/1"));
    }
}

#[test]
fn reftable_is_said_not_to_be_kept() {
    for (format, is_said) in [("reftable", true), ("files", false)] {
        let exec = crate::exec::Exec::new(crate::exec::Who::Me);
        let makes = exec.program("git").args(["init", "-q", "--ref-format", format, "probe"]).run().status == 0;
        if !cp_testkit::required("git 2.45 for reftable", makes) {
            return;
        }
        owner(&exec, &format!("git init -q --ref-format={format} ."));
        let missing = exec.inside("true")["enforcement"]["missing"].to_string();
        assert_eq!(missing.contains("reftable, of which nothing is kept"), is_said, "{format}: {missing}");
    }
}
