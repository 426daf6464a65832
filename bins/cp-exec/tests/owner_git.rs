//! The git configuration of the owner in a run: settings that start no program are as outside, others are absent, and
//! files with a filter are stored filtered or not at all.

use std::fs;

use cp_testkit::Outcome;

use crate::exec::{Exec, POLICY, Who, everyone, rows};

/// Settings that start no program: key and value.
const HARMLESS: &str = include_str!("data/git/harmless-settings.tsv");

/// Settings that start a program, or hold a secret.
const LEFT_OUT: &str = include_str!("data/git/left-out-settings.tsv");

/// A project with a repository without an identity of its own.
fn repository(who: Who, policy: &str) -> Exec {
    let exec = Exec::with_policy(who, policy);
    exec.outside("git init -q -b main .").run().success();
    exec
}

/// Runs a line as a line, a single command and an agent. A file of the project's directory replaces the machine's.
fn inside(exec: &Exec, line: &str) -> [(&'static str, Outcome); 3] {
    let run = |words: &[&str]| exec.command(words).env("GIT_CONFIG_SYSTEM", exec.root.join("system")).run();
    [
        ("line", run(&["--format", "raw", "-c", line])),
        ("command", run(&["--format", "raw", "--", "sh", "-c", line])),
        ("agent", run(&["agent", "--", "sh", "-c", line])),
    ]
}

/// Settings in the syntax of git.
fn config(settings: impl Iterator<Item = [&'static str; 2]>) -> String {
    let lines = settings.map(|[key, value]| {
        let (head, last) = key.rsplit_once('.').unwrap();
        let (section, below) = head.split_once('.').unwrap_or((head, ""));
        let below = if below.is_empty() { String::new() } else { format!(" \"{below}\"") };
        format!("[{section}{below}]\n\t{last} = \"{value}\"\n")
    });
    lines.collect()
}

#[test]
fn settings_that_start_no_program_are_as_outside_in_each_scope_and_run() {
    for who in everyone() {
        for scope in ["system", "global", "includeIf", "XDG"] {
            let exec = repository(who, POLICY);
            let text = config(rows(HARMLESS).chain(rows(LEFT_OUT)));
            let system = exec.root.join("system");
            let included = format!("[includeIf \"gitdir:{}/\"]\n\tpath = .hidden\n", exec.work.display());
            match scope {
                "system" => _ = fs::write(&system, &text),
                "global" => _ = exec.user.write(".gitconfig", &text),
                "XDG" => _ = exec.user.write(".config/git/config", &text),
                _ => {
                    exec.user.write(".hidden", &text);
                    exec.user.write(".gitconfig", included);
                }
            }
            let line = "git config --list --name-only; for k in KEYS; do echo \"$k=$(git config --get \"$k\")\"; done";
            let keys: Vec<String> = rows(HARMLESS).map(|[key, _]| format!("'{key}'")).collect();
            let line = line.replace("KEYS", &keys.join(" "));
            let outside = exec.outside(&line).env("GIT_CONFIG_SYSTEM", &system).run().success().stdout;
            for (kind, ran) in inside(&exec, &line) {
                let cell = format!("{who:?} {scope} {kind}");
                for [key, value] in rows(HARMLESS) {
                    let shown = format!("\n{key}={}\n", value.replace('\\', ""));
                    assert!(outside.contains(&shown), "the control: {cell} {shown} {outside}");
                    assert!(ran.stdout.contains(&shown), "{cell}: {shown} {ran:?}");
                }
                for [key, _] in rows(LEFT_OUT) {
                    let (head, last) = key.rsplit_once('.').unwrap();
                    let shown = format!("\n{head}.{}\n", last.to_lowercase()).to_lowercase();
                    assert!(outside.to_lowercase().contains(&shown), "the control: {cell} {shown}");
                    // The file system monitor is off in every run.
                    let is_set = key != "core.fsmonitor" && ran.stdout.to_lowercase().contains(&shown);
                    assert!(!is_set, "{cell}: {key} is set: {ran:?}");
                }
            }
        }
    }
}

#[test]
fn commits_have_identity_of_owner_and_repository_has_precedence() {
    for who in everyone() {
        let exec = repository(who, POLICY);
        exec.user.write(".gitconfig", "[user]\n\tname = N\n\temail = n@x.y\n[commit]\n\tgpgSign = true\n");
        let last = || exec.outside("git log -1 --format='%an %ae'").run().success().stdout;
        for (kind, ran) in inside(&exec, "git commit -q --allow-empty -m x && git commit -q --allow-empty -m x") {
            assert_eq!((ran.status, last().as_str()), (0, "N n@x.y\n"), "{who:?} {kind}: {ran:?}");
            assert_eq!(ran.stderr.matches("are not signed").count(), 1, "{who:?} {kind}: {ran:?}");
        }
        exec.outside("git config user.name R && git config commit.gpgSign false").run().success();
        for (kind, ran) in inside(&exec, "git commit -q --allow-empty -m x") {
            assert_eq!((ran.status, last().as_str()), (0, "R n@x.y\n"), "{who:?} {kind}: {ran:?}");
            assert!(!ran.stderr.contains("are not signed"), "{who:?} {kind}: {ran:?}");
        }
    }
}

#[test]
fn ignored_names_attributes_and_line_endings_are_of_owner() {
    for who in everyone() {
        for (global, ignore, attributes) in [
            ("", ".config/git/ignore", ".config/git/attributes"),
            ("[core]\n\texcludesFile = ~/.mine\n\tattributesFile = ~/.kinds\n", ".mine", ".kinds"),
        ] {
            let exec = repository(who, POLICY);
            exec.user.write(".gitconfig", format!("[core]\n\tautocrlf = input\n{global}"));
            exec.user.write(ignore, ".DS_Store\n");
            exec.user.write(attributes, "*.raw -text\n");
            exec.work.write(".DS_Store", "x");
            exec.work.write("a.txt", "a\r\n");
            exec.work.write("a.raw", "a\r\n");
            let line = "rm -f .git/index; git add -A; git ls-files; git cat-file -s :a.txt; git cat-file -s :a.raw";
            let outside = exec.outside(line).run().success().stdout;
            assert_eq!(outside, "a.raw\na.txt\n2\n3\n", "the control");
            for (kind, ran) in inside(&exec, line) {
                assert_eq!(ran.stdout, outside, "{who:?} {kind} {ignore}: {ran:?}");
            }
        }
    }
}

#[test]
fn filtered_files_are_stored_filtered_or_refused() {
    let lfs = cp_testkit::counterpart("git-lfs");
    let lines = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\t\
                 process = git-lfs filter-process\n\trequired = true\n";
    let add =
        "rm -f .git/index; git add plain; git add a.bin; echo $?; git ls-files; git cat-file -p :a.bin | head -c 7";
    for who in everyone() {
        for (global, stored) in [
            (lines.to_owned(), lfs.is_some()),
            (lines.replace("git-lfs clean", "rev"), false),
            (lines.replace("lfs", "crypt"), false),
            ("[filter \"crypt\"]\n\tclean = rev\n".to_owned(), false),
        ] {
            let exec = repository(who, POLICY);
            let name = if global.contains("crypt") { "crypt" } else { "lfs" };
            exec.user.write(".gitconfig", &global);
            exec.work.write(".gitattributes", format!("*.bin filter={name}\n"));
            exec.work.write("a.bin", "content\n");
            exec.work.write("plain", "x");
            for (kind, ran) in inside(&exec, add) {
                let cell = format!("{who:?} {kind} {global}: {ran:?}");
                if stored {
                    assert_eq!(ran.stdout, "0\na.bin\nplain\nversion", "{cell}");
                } else {
                    assert_eq!(ran.stdout, "128\nplain\n", "{cell}");
                    assert!(global == lines || ran.stderr.contains("of your git configuration starts"), "{cell}");
                }
            }
        }
        // Without git-lfs within reach nothing is stored.
        let exec = repository(who, "[exec]\nallowed_commands = [\"git\"]\nprofile = \"strict\"\n");
        exec.user.write(".gitconfig", lines);
        exec.work.write(".gitattributes", "*.bin filter=lfs\n");
        exec.work.write("a.bin", "content\n");
        let ran = exec.command(&["--format", "raw", "-c", "git add a.bin; echo $?; git ls-files"]).run();
        assert_eq!(ran.stdout, "128\n", "{who:?}: {ran:?}");
    }
}

#[test]
fn alias_is_judged_as_command_that_it_stands_for() {
    for who in everyone() {
        let exec = repository(who, "[exec]\nallowed_commands = [\"git\", \"sh\"]\n");
        exec.user.write(
            ".gitconfig",
            "[user]\n\tname = N\n\temail = n@x\n[alias]\n\tco = checkout\n\tnuke = reset --hard\n\tbomb = nuke\n\
             \tstatus = log\n\tlog = status\n",
        );
        exec.outside("git commit -q --allow-empty -m a").run().success();
        for words in [
            &["--", "git", "co", "-q", "--detach"][..],
            &["-c", "git -C . co -q --detach; git status"],
            &["agent", "--", "sh", "-c", "git co -q --detach"],
        ] {
            let ran = exec.command(words).run();
            assert_eq!(ran.status, 0, "{who:?} {words:?}: {ran:?}");
        }
        for line in ["git nuke", "git bomb", "git BOMB", "git -C . nuke", "git co -- f", "git --no-pager co -- f"] {
            let words: Vec<&str> = ["--"].into_iter().chain(line.split(' ')).collect();
            for words in [&words[..], &["-c", line]] {
                let ran = exec.command(words).run();
                let is_refused = ran.stdout.contains("git.discard");
                assert!(ran.status != 0 && is_refused, "{who:?} {words:?}: {ran:?}");
            }
        }
    }
}

#[test]
fn files_that_settings_name_are_as_outside() {
    for who in everyone() {
        let exec = repository(who, POLICY);
        let settings = "[user]\n\tname = N\n\temail = n@x\n[commit]\n\ttemplate = ~/message\n[mailmap]\n\tfile = ~/map\n\
                        [blame]\n\tignoreRevsFile = ~/ignored\n\tignoreRevsFile = .ignored\n[diff]\n\torderFile = ~/order\n";
        exec.user.write(".gitconfig", settings);
        for (name, text) in [("message", "Subject\n"), ("map", "M <m@x> <n@x>\n"), ("ignored", ""), ("order", "b\na\n")]
        {
            exec.user.write(name, text);
        }
        exec.work.write(".ignored", "");
        exec.outside("touch a b && git add -A && git commit -q -m x && echo 1 | tee a b >.x").run().success();
        let line = "git log -1 --format=%aN; git diff --name-only; git blame -s a | wc -l; \
                    GIT_EDITOR='sed -i s/Subject/Other/' git commit -q --allow-empty; git log -1 --format=%s";
        let outside = exec.outside(line).run().success().stdout;
        assert!(outside.starts_with("M\nb\na\n") && outside.ends_with("\nOther\n"), "the control: {outside}");
        for (kind, ran) in inside(&exec, line) {
            assert_eq!(ran.stdout, outside, "{who:?} {kind}: {ran:?}");
        }
    }
}

#[test]
fn what_owner_settings_would_start_is_said() {
    const HOOKS: &str = "core.hooksPath in your git configuration";
    for who in everyone() {
        for (global, local, line, said) in [
            ("[core]\n\thooksPath = /opt/hooks\n", "true", "git commit -q --allow-empty -m x", HOOKS),
            ("[core]\n\thooksPath = /opt/hooks\n", "true", "git status", ""),
            (
                "[core]\n\thooksPath = /opt/hooks\n",
                "git config core.hooksPath h",
                "git commit -q --allow-empty -m x",
                "",
            ),
            ("[core]\n\thooksPath = /dev/null\n", "true", "test $(git config core.hooksPath) = /dev/null", ""),
            ("[remote]\n\tpushDefault = ../fork\n", "true", "test -z $(git config remote.pushDefault)", ""),
            ("[alias]\n\tst = !git status\n", "true", "git st || true", "the alias st of your git configuration"),
            (
                "[alias]\n\tst = -c core.pager=x log\n",
                "true",
                "git st || true",
                "the alias st of your git configuration",
            ),
            ("[alias]\n\tst = ''\n", "true", "git st || true", ""),
            ("[alias]\n\tlog = !git status\n\tst = status\n", "true", "git st && git log --all", ""),
        ] {
            let exec = repository(who, POLICY);
            exec.user.write(".gitconfig", format!("[user]\n\tname = N\n\temail = n@x\n{global}"));
            exec.outside(local).run().success();
            for (kind, ran) in inside(&exec, line) {
                assert_eq!(ran.status, 0, "{who:?} {kind} {global} {line}: {ran:?}");
                let is_said = ran.stderr.contains("of your git configuration") || ran.stderr.contains(HOOKS);
                assert_eq!(is_said, !said.is_empty(), "{who:?} {kind} {global} {line}: {ran:?}");
                assert!(ran.stderr.contains(said), "{who:?} {kind} {global} {line}: {ran:?}");
            }
        }
    }
}
