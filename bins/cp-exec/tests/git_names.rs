//! Names that a run must not give a file of its own: `commondir` beside an agent, and those of this program's new files.

use std::fs;

use crate::exec::everyone;
use crate::guard::{owner, repository};

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
        exec.own_all();
        let names = "config.cp-exec .cp-exec config.lock.cp-exec config.tmp .new state.json.cp-exec";
        let line =
            format!("for n in {names}; do ln -s {} .git/$n; ln -s {0} $n; done; touch began; sleep 1", out.display());
        let run = exec.command(&["--", "sh", "-c", &line]).start();
        while !exec.work.join("began").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        owner(&exec, "git config user.name you");
        exec.own_all();
        run.finish();
        assert_eq!(fs::read_to_string(&out).unwrap(), "mine\n", "{who:?}");
        assert!(!exec.work.join(".git/config").is_symlink(), "{who:?}");
        assert_eq!(owner(&exec, "git config user.name"), "you\n", "{who:?}");
    }
}
