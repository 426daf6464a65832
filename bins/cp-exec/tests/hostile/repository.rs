//! Contents of a repository neither block the program nor are merged without a check.

use std::fs;
use std::time::Duration;

use crate::exec::{Exec, everyone};

#[test]
fn hostile_repository_neither_blocks_nor_is_merged_unread() {
    for who in everyone() {
        let exec = Exec::new(who);
        exec.program("git").args(["init", "-q"]).run().success();
        let begin = "mkdir -p .git/rebase-merge && ";
        for (line, stays) in [
            // Opening a pipe without a writer would block forever.
            ("mkfifo .git/rebase-merge/git-rebase-todo", false),
            ("printf '# \\377\\nexec touch later\\n' > .git/rebase-merge/git-rebase-todo", false),
            ("printf 'pick abc\\nx touch later\\n' > .git/rebase-merge/git-rebase-todo", false),
            ("mkfifo .git/rebase-merge/other", false),
            ("printf 'pick abc\\n' > .git/rebase-merge/git-rebase-todo", true),
        ] {
            let command = exec.command(&["--timeout", "5", "--", "sh", "-c", &format!("{begin}{line}")]);
            let ran = command.limit(Duration::from_secs(20)).run();
            assert!(!ran.stdout.is_empty(), "{who:?} {line}");
            let list = exec.work.join(".git/rebase-merge/git-rebase-todo");
            assert_eq!(fs::symlink_metadata(list).is_ok(), stays, "{who:?}: {line}: {ran:?}");
            let _ = fs::remove_dir_all(exec.work.join(".git/rebase-merge"));
        }
    }
}
