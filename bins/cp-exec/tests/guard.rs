//! Files of a run that other programs would execute later are read-only, or quarantined when the result is reported.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use cp_testkit::Program;
use serde_json::Value;

use crate::exec::{Exec, Who, details, everyone};

pub(crate) fn trusted(program: Program) -> Program {
    let program = program.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory");
    program.env("GIT_CONFIG_VALUE_0", "*")
}

/// A project with a repository that has one commit.
pub(crate) fn repository(who: Who) -> Exec {
    let exec = Exec::new(who);
    let setup = "git init -q -b main . && git config user.name me && git config user.email me@x && echo a > f && git add f && git commit -qm a";
    trusted(exec.program("sh").args(["-c", setup])).run().success();
    exec
}

/// The output of git outside of the sandbox, as the owner runs it.
pub(crate) fn owner(exec: &Exec, line: &str) -> String {
    let told = trusted(exec.program("sh").args(["-c", line])).run().success().stdout;
    exec.own_all();
    told
}

pub(crate) fn undone(answer: &Value) -> Vec<(String, String)> {
    let details = details(answer);
    let guard = details["enforcement"]["guard"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    guard.iter().map(|undone| (text(&undone["path"]), text(&undone["moved_to"]))).collect()
}

#[test]
fn work_in_repository_is_kept() {
    for who in everyone() {
        let exec = repository(who);
        let script = "echo b > f && git commit -qam b && git tag t && git branch side && git branch side/x 2>/dev/null; \
                      git checkout -q side && echo c > g && git add g && git commit -qm c && git checkout -q main && \
                      git merge -q side && git branch -q -d side && git branch side/x && git gc -q && git stash list && git status --short";
        let (answer, status) = exec.sh(script);
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        assert_eq!(
            owner(
                &exec,
                "git fsck --strict 2>&1; git log --format=%s; git branch --format='%(refname:short)'; git tag; git status --short"
            ),
            "c\nb\na\nmain\nside/x\nt\n"
        );
        // A second run begins where the first ended, and undoes it.
        let (answer, status) = exec.sh(
            "git -c alias.z=reset z -q --hard HEAD~1 && git -c alias.z=tag z -d t && git -c alias.z=branch z -D side/x",
        );
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        assert_eq!(
            owner(&exec, "git log --format=%s; git tag; git branch --format='%(refname:short)'"),
            "b\na\nmain\n"
        );
    }
}

#[test]
fn repository_parts_that_name_programs_are_read_only() {
    const EVIL: &str = "printf '#!/bin/sh\\ntouch OUT/ran\\n' > evil; chmod +x evil; \
        git -c alias.z=config z core.fsmonitor WORK/evil; git -c alias.z=config z user.name other; \
        git -c alias.z=remote z add origin https://example.org/a.git; printf '[core]\\nfsmonitor = WORK/evil\\n' >> .git/config; \
        cp evil .git/hooks/post-checkout; cp evil .git/hooks/post-index-change; \
        mkdir other; printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = WORK/evil\\n' > other/config; echo WORK/other > .git/commondir; \
        echo x > .git/config.worktree; printf '* filter=x\\n' > .git/info/attributes; echo WORK/other > .git/objects/info/alternates; \
        for f in hooks info objects config; do perl -e 'rename shift, shift' .git/$f x$f; done; perl -e 'rename shift, shift' .git .g2; perl -e 'unlink @ARGV' .git/config; ln -sf ../evil .git/config; touch fine";
    const LATER: &str = "git status --short >/dev/null 2>&1; git checkout -q -b later 2>/dev/null; ls OUT";
    const PARTS: &str = "cat .git/config; ls -A .git/hooks .git/info .git/objects/info .git";
    for who in everyone() {
        let exec = repository(who);
        let with = |text: &str| {
            text.replace("WORK", exec.work.to_str().unwrap()).replace("OUT", exec.root.join("out").to_str().unwrap())
        };
        fs::create_dir(exec.root.join("out")).unwrap();
        fs::create_dir(exec.work.join(".git/cp-keep")).unwrap();
        let before = owner(&exec, PARTS);
        let (answer, status) = exec.sh(&with(EVIL));
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        assert!(exec.work.join("fine").exists(), "the whole script ran");
        assert_eq!(owner(&exec, PARTS), before, "{who:?}");
        assert_eq!(owner(&exec, &with(LATER)), "", "{who:?}: something of the run ran later");
        // The control: outside the sandbox the same runs when the owner looks.
        let evil = with(EVIL).split("for f in").next().unwrap().to_owned();
        trusted(exec.program("sh").args(["-c", &evil])).run();
        fs::remove_file(exec.work.join(".git/commondir")).unwrap();
        assert_eq!(owner(&exec, &with(LATER)), "ran\n", "the control did not run");
    }
}

/// Every guarded name of the table.
fn guarded_names() -> Vec<String> {
    let table: toml::Table = toml::from_str(include_str!("../src/names.toml")).unwrap();
    let names = ["everywhere", "outside_packages"].into_iter().flat_map(|list| table[list].as_array().unwrap());
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Runs a script that is generated from all names, each in its own directory, and returns the answer.
fn run_for_every_name(exec: &Exec, line: impl Fn(&str, &str, &str) -> String) -> Value {
    let names = guarded_names();
    let mut script = (0..names.len()).fold("mkdir -p".to_owned(), |script, at| format!("{script} d{at}"));
    for (at, name) in names.iter().enumerate() {
        let (above, last) = name.rsplit_once('/').unwrap_or((".", name));
        // Each program is decided about, which takes longer than it runs.
        let line = line(name, above, last).replace("mkdir -p . && ", "");
        write!(script, "\n(cd d{at} && {line})").unwrap();
    }
    exec.write("make.sh", &script);
    exec.ask(&["--timeout", "60", "--", "sh", "-c", ". ./make.sh"]).0
}

/// Checks that nothing of a guarded name is there, and the neighbour of each is.
fn assert_quarantined(exec: &Exec, answer: &Value, what: &str) {
    assert_eq!(answer["error"]["details"]["rule"], "guard", "{what}: {answer}");
    for (at, name) in guarded_names().iter().enumerate() {
        let directory = exec.work.join(format!("d{at}"));
        assert!(!directory.join(name).exists(), "{what}: {name} stayed");
        assert_eq!(fs::read_to_string(directory.join("neighbour")).unwrap_or_default(), "x\n", "{what}: beside {name}");
    }
    for (path, kept) in undone(answer) {
        assert!(fs::symlink_metadata(&kept).is_ok(), "{what}: {path} is kept as {kept}");
    }
}

#[test]
fn guarded_name_created_is_quarantined() {
    let ways = ["directly", "mv", "ln -s"];
    for (who, way) in everyone().into_iter().flat_map(|who| who.turns(ways).map(move |way| (who, way))) {
        let exec = Exec::new(who);
        let answer = run_for_every_name(&exec, |name, above, _| match way {
            "directly" => format!("echo x > neighbour && mkdir -p {above} && echo x > {name}"),
            way => made_elsewhere(name, way),
        });
        assert_quarantined(&exec, &answer, &format!("{who:?} {way}"));
        if way == "ln -s" {
            assert!(exec.work.join("d0/plain").exists(), "the targets of the links are ordinary files again");
        }
        if way != "directly" {
            continue;
        }
        assert_eq!(undone(&answer).len(), guarded_names().len(), "{answer}");
        let entry = exec.entries("exec.result").pop().unwrap();
        assert_eq!(entry["data"]["enforcement"]["guard"].as_array().unwrap().len(), undone(&answer).len());
        // The control: a run that leaves nothing of the kind behind.
        let ordinary = "mkdir -p x node_modules/p/.vscode .github/workflows .cargo tools .config && touch x/.keep Makefile package.json build.rs \
                        conftest.py .gitattributes .gitignore .github/workflows/ci.yml .cargo/audit.toml tools/x .config/x \
                        node_modules/p/.vscode/settings.json";
        assert_eq!(exec.sh(ordinary).1, 0);
    }
}

/// A script that makes the first part of a name as `plain`, and then runs `link plain FIRST`.
fn made_elsewhere(name: &str, link: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or((name, ""));
    let plain = if rest.is_empty() { "plain".to_owned() } else { format!("plain/{rest}") };
    let above = plain.rsplit_once('/').map_or(".", |(above, _)| above);
    format!("echo x > neighbour && mkdir -p {above} && echo x > {plain} && {link} plain {first}")
}

#[test]
fn target_of_owner_link_with_guarded_name_is_guarded() {
    for who in everyone() {
        let exec = Exec::new(who);
        for (at, name) in guarded_names().iter().enumerate() {
            let (first, rest) = name.split_once('/').unwrap_or((name, ""));
            let directory = exec.work.join(format!("d{at}"));
            fs::create_dir_all(&directory).unwrap();
            if rest.is_empty() {
                fs::write(directory.join("plain"), "mine\n").unwrap();
            } else {
                fs::create_dir_all(directory.join("plain")).unwrap();
            }
            std::os::unix::fs::symlink("plain", directory.join(first)).unwrap();
        }
        let answer = run_for_every_name(&exec, |name, _, _| {
            let (first, rest) = name.split_once('/').unwrap_or((name, ""));
            if rest.is_empty() {
                return format!("echo x > neighbour; echo x > plain; rm -f {first}; echo x > {first}; true");
            }
            format!("{} && echo x > plain/neighbour", made_elsewhere(name, "true"))
        });
        assert_eq!(answer["error"]["details"]["rule"], "guard", "{who:?}: {answer}");
        for (at, name) in guarded_names().iter().enumerate() {
            let (first, rest) = name.split_once('/').unwrap_or((name, ""));
            let directory = exec.work.join(format!("d{at}"));
            assert_eq!(fs::read_link(directory.join(first)).unwrap(), Path::new("plain"), "{who:?}: {name}");
            if rest.is_empty() {
                assert_eq!(fs::read_to_string(directory.join("plain")).unwrap(), "mine\n", "{who:?}: {name}");
            } else {
                assert!(!directory.join(name).exists(), "{who:?}: {name} stayed");
                assert!(!directory.join("plain/neighbour").exists(), "{who:?}: beside {name}");
            }
            assert_eq!(fs::read_to_string(directory.join("neighbour")).unwrap(), "x\n", "{who:?}: beside {name}");
        }
    }
}

#[test]
fn guarded_name_checked_out_is_quarantined() {
    for who in everyone() {
        let exec = Exec::new(who);
        let mut script = "git init -q -b main . && git config user.name me && git config user.email me@x\n".to_owned();
        script.push_str("git commit -q --allow-empty -m empty && git checkout -q -b full\n");
        for (at, name) in guarded_names().iter().enumerate() {
            let above = name.rsplit_once('/').map_or(".", |(above, _)| above);
            writeln!(script, "(mkdir -p d{at}/{above}; cd d{at}; echo x > neighbour; echo x > {name})").unwrap();
        }
        script.push_str("git add -A && git commit -q -m full && git checkout -q main\n");
        trusted(exec.program("sh").args(["-c", &script])).run().success();
        let (answer, _) = exec.ask(&["--", "git", "checkout", "-q", "full"]);
        assert_quarantined(&exec, &answer, &format!("{who:?} by checkout"));
    }
}

#[test]
fn run_with_too_many_files_fails_and_next_run_succeeds() {
    for who in everyone() {
        let exec = Exec::with_policy(
            who,
            &format!("{}\n[paths]\nread = [\".\"]\nwrite = [\".\"]\nwalk = 300\n", crate::exec::POLICY),
        );
        exec.write("mine", "x");
        let script = "echo x > .envrc; mkdir -p a/many; i=0; while [ $i -lt 400 ]; do : > a/many/$i; i=$((i+1)); done; mkdir -p z/.vscode; echo x > z/.vscode/tasks.json";
        let (answer, status) = exec.sh(script);
        assert_eq!((status, &answer["error"]["details"]["rule"]), (4, &"guard".into()), "{who:?}: {answer}");
        for name in [".envrc", "a/many", "z/.vscode/tasks.json"] {
            assert!(!exec.work.join(name).exists(), "{who:?}: {name}: {answer}");
        }
        assert_eq!(exec.ask(&["--", "cat", "mine"]).1, 0, "{who:?}: the next run");
        // Files in a directory of the owner are not moved, but the answer says that they were not searched.
        let script = "i=0; while [ $i -lt 400 ]; do : > $i; i=$((i+1)); done";
        let ran = exec.command(&["--format", "text", "--", "sh", "-c", script]).run();
        assert_eq!(ran.status, 4, "{who:?}: {ran:?}");
        assert!(ran.stderr.contains("could not be searched"), "{who:?}: {ran:?}");
        let (answer, _) = exec.ask(&["--", "cat", "mine"]);
        assert_eq!(answer["error"]["details"]["setting"], "paths.walk", "{who:?}: {answer}");
    }
}

#[test]
fn existing_guarded_names_are_read_only_at_any_depth() {
    for who in everyone() {
        let exec = Exec::new(who);
        for name in [".bashrc", "a/b/.envrc", "a/.vscode/tasks.json"] {
            exec.write(name, "mine\n");
        }
        let script = "for f in .bashrc a/b/.envrc a/.vscode/tasks.json; do echo evil > $f; rm -f $f; mv $f x; done; \
                      mv a a2 && mkdir -p a/b && echo evil > a/b/.envrc; echo fine > ordinary";
        exec.sh(script);
        for name in [".bashrc", "a/b/.envrc", "a/.vscode/tasks.json"] {
            assert_eq!(fs::read_to_string(exec.work.join(name)).unwrap(), "mine\n", "{who:?}: {name}");
        }
        assert!(exec.work.join("ordinary").exists(), "the control");
    }
}

#[test]
fn file_operation_on_guarded_name_is_refused() {
    let exec = Exec::new(Who::Me);
    fs::create_dir_all(exec.work.join(".git")).unwrap();
    fs::create_dir_all(exec.work.join("sub")).unwrap();
    let write = |path: &str| exec.file(&[], "write_file", &serde_json::json!({"path": path, "content": "x"}));
    for path in [".bashrc", "sub/.envrc", ".git/config", ".git/commondir", "sub/.npmrc"] {
        assert_eq!(write(path)["error"]["details"]["rule"], "protected", "{path}");
        assert!(!exec.work.join(path).exists(), "{path}");
    }
    // The name counts that is asked for, and every name that a link gives to the place.
    fs::create_dir_all(exec.work.join("cfg")).unwrap();
    std::os::unix::fs::symlink("../cfg", exec.work.join("sub/.gemini")).unwrap();
    std::os::unix::fs::symlink("sub/.cursor", exec.work.join(".cursor")).unwrap();
    fs::create_dir_all(exec.work.join("sub/.cursor")).unwrap();
    std::os::unix::fs::symlink("cfg", exec.work.join(".vscode")).unwrap();
    for path in ["sub/.gemini/settings.json", ".cursor/mcp.json", "cfg/tasks.json", "cfg/other.json"] {
        assert_eq!(write(path)["error"]["details"]["rule"], "protected", "{path}");
    }
    assert_eq!(write("sub/Makefile")["ok"], true, "the control");
}

#[test]
fn unreadable_directory_hides_no_repository() {
    let exec = repository(*everyone().last().unwrap());
    let script = "mkdir -p d/.git && echo x > d/.git/config && chmod 311 d";
    let (answer, _) = exec.sh(script);
    assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{answer}");
    assert!(!exec.work.join("d/.git/config").exists());
}

#[test]
fn pristine_or_hidden_repository_is_neither_written_nor_quarantined() {
    for who in everyone() {
        let exec = repository(who);
        let commit = ["--", "git", "commit", "-q", "--allow-empty", "-m", "b"];
        assert_eq!(exec.ask(&commit).1, 0, "the control");
        let policy = fs::read_to_string(exec.home.join("config/policy.toml")).unwrap();
        for paths in ["pristine = [\".git\"]", "forbidden = [\".git\"]", "pristine = [\"**/.git\"]"] {
            exec.policy(&format!("{policy}\n[paths]\n{paths}\n"));
            let (answer, status) = exec.ask(&["--", "true"]);
            assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?} {paths}: {answer}");
            assert_ne!(exec.ask(&commit).1, 0, "{who:?} {paths}");
            assert_eq!(owner(&exec, "git log --format=%s"), "b\na\n", "{who:?} {paths}");
        }
    }
}
