//! Repositories that a run makes, moves, or works in from elsewhere: they stay and work where nothing in them would run
//! later.

use std::fs;
use std::path::Path;

use cp_testkit::required;
use serde_json::Value;

use crate::exec::{Exec, Who, details, everyone, rows};
use crate::guard::{owner, repository, trusted, undone};

/// Repositories of an answer that were made and looked through, by what their paths end with.
fn made(answer: &Value) -> Vec<String> {
    let details = details(answer);
    let made = details["enforcement"]["repositories_made"].as_array().unwrap_or_else(|| panic!("{answer}"));
    made.iter().map(|path| path.as_str().unwrap().rsplit("/work/").next().unwrap().to_owned()).collect()
}

#[test]
fn new_repository_stays_and_works() {
    for who in everyone() {
        let exec = repository(who);
        for (words, made_there) in [
            (&["git", "init", "-q", "-b", "main", "new"][..], "new/.git"),
            (&["git", "clone", "-q", ".", "copy"], "copy/.git"),
            (&["git", "init", "-q", "--bare", "bare"], "bare"),
            (&["git", "clone", "-q", "--bare", ".", "bare2"], "bare2"),
            (&["git", "clone", "-q", "copy", "copy2"], "copy2/.git"),
        ] {
            let (answer, status) = exec.ask(&[&["--"], words].concat());
            assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?} {words:?}: {answer}");
            assert_eq!(made(&answer), [made_there], "{answer}");
        }
        let identity = "-c user.name=me -c user.email=me@x";
        let work = format!(
            "cd new && git status --short && git {identity} commit -q --allow-empty -m n && git log --format=%s && git fsck --strict 2>&1; \
             cd ../copy2 && git log --format=%s && git status --short && git remote get-url origin | grep -c work/copy && git -C ../bare2 log --format=%s && git -C ../bare fsck 2>&1"
        );
        let told = owner(&exec, &work);
        assert_eq!(
            told.lines().filter(|line| !line.starts_with("notice")).collect::<Vec<_>>(),
            ["n", "a", "1", "a"],
            "{told}"
        );
        // The next run works in it as in any other.
        let script = format!("cd new && echo b > b && git add b && git {identity} commit -qm b && git status --short");
        let (answer, status) = exec.sh(&script);
        assert_eq!((status, made(&answer).len()), (0, 0), "{answer}");
        assert_eq!(owner(&exec, "git -C new log --format=%s"), "b\nn\n");
    }
}

#[test]
fn repository_directories_are_readable() {
    for who in everyone() {
        let exec = repository(who);
        // The first run keeps things in the repository.
        for _ in 0..2 {
            let (answer, status) = exec.ask(&["--", "find", ".", "-type", "d"]);
            assert_eq!((status, &answer["data"]["stderr"]), (0, &Value::from("")), "{who:?}: {answer}");
        }
        assert!(exec.work.join(".git/cp-keep").is_dir(), "the control");
        let (answer, _) = exec.ask(&["--", "ls", "-A", ".git/cp-keep"]);
        assert_eq!(answer["data"]["stdout"], "", "{who:?}: {answer}");
    }
}

#[test]
fn settings_that_git_writes_into_new_repository_stay() {
    let clones = [
        "--filter=blob:none",
        "--filter=tree:0",
        "--filter=blob:limit=1k",
        "--sparse",
        "--filter=blob:none --sparse",
        "--mirror",
        "--depth 1",
        "--single-branch",
        "--no-tags",
        "--origin up",
        "-c core.autocrlf=input",
    ];
    let inits = ["--shared", "--shared=all", "--object-format=sha256", "--bare --shared", "-b other"];
    let later = [
        "git maintenance run --auto -q; git config maintenance.auto false",
        "git sparse-checkout set --sparse-index a",
    ];
    let clones = clones.map(|options| format!("git clone -q {options} file://$PWD new 2>&1"));
    let inits = inits.map(|options| format!("git init -q {options} new"));
    let later = later.map(|line| format!("git clone -q . new && cd new && {line}"));
    for who in everyone() {
        let exec = repository(who);
        for script in clones.iter().chain(&inits).chain(&later) {
            let (answer, status) = exec.sh(script);
            assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?} {script}: {answer}");
            assert_eq!(made(&answer).len(), 1, "{who:?} {script}: {answer}");
            owner(&exec, "git -C new rev-parse --git-dir && rm -rf new");
        }
    }
}

/// Contents of a repository that make the owner's `git` run a program, or trust files in other directories.
const EVIL: &str = include_str!("data/git/evil.tsv");

#[test]
fn new_repository_that_runs_program_is_quarantined() {
    const BEGIN: &str = "mkdir other other/hooks; git init -q -b main other/r && mv other/r/.git/objects other/r/.git/refs other/; \
        printf '#!/bin/sh\\ntouch OUT/ran\\n' > evil; chmod +x evil; cp evil other/hooks/post-index-change; \
        printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = EVIL\\n' > other/config; rm -rf other/r; \
        git init -q -b main new && cd new && echo a > f && git add f && ";
    const LATER: &str = "cd new; echo x >> f; git status --short >/dev/null 2>&1; git add f 2>/dev/null; git add -A 2>/dev/null; ls OUT";
    for who in everyone() {
        for [name, part, script] in rows(EVIL) {
            let exec = Exec::new(who);
            fs::create_dir(exec.root.join("out")).unwrap();
            let with = |text: &str| {
                let evil = exec.work.join("evil").display().to_string();
                text.replace("EVIL", &evil).replace("OUT", exec.root.join("out").to_str().unwrap())
            };
            let script = with(&format!("{BEGIN}{script}"));
            let (answer, status) = exec.sh(&script);
            assert_eq!((status, &answer["error"]["code"]), (4, &"E_FORBIDDEN".into()), "{who:?} {name}: {answer}");
            assert!(made(&answer).is_empty(), "{name}: {answer}");
            let path = exec.work.join("new/.git").join(part).display().to_string();
            assert!(undone(&answer).iter().any(|(of, kept)| *of == path && !kept.is_empty()), "{name}: {answer}");
            if part == "config" && name == "core.fsmonitor" {
                assert!(answer["error"]["details"]["hint"].as_str().unwrap().contains("core.fsmonitor"), "{answer}");
            }
            assert_eq!(owner(&exec, &with(LATER)), "", "{who:?} {name}: something of the run ran later");
            // The control: made outside the sandbox, the same runs when the owner looks.
            fs::remove_dir_all(exec.work.join("new")).unwrap();
            fs::remove_dir_all(exec.work.join("other")).unwrap();
            trusted(exec.program("sh").args(["-c", &script])).run().success();
            assert_eq!(owner(&exec, &with(LATER)), "ran\n", "{name}: the control did not run");
        }
    }
}

#[test]
fn new_repository_with_outside_references_is_quarantined() {
    const SCRIPTS: &str = include_str!("data/git/outside-references.tsv");
    let exec = repository(Who::Me);
    for (at, [part, script]) in rows(SCRIPTS).enumerate() {
        let new = &format!("new{at}");
        let script = script.replace("WORK", exec.work.to_str().unwrap());
        let script = format!("git init -q {new} && cd {new} && {script}");
        let (answer, status) = exec.sh(&script);
        let path = exec.work.join(new).join(part).display().to_string();
        assert_eq!(status, 4, "{script}: {answer}");
        assert!(undone(&answer).iter().any(|(of, _)| *of == path), "{script}: {answer}");
        assert!(exec.work.join(new).join(part).symlink_metadata().is_err(), "{script}: {answer}");
    }
    assert_eq!(exec.sh("git init -q new && cd new && git config user.name x").1, 0);
}

#[test]
fn split_repository_is_found() {
    const SCRIPT: &str = "git init -q x && mkdir other && perl -e 'rename shift, shift' x/.git/objects other/objects && perl -e 'rename shift, shift' x/.git/refs other/refs && perl -MFile::Path=rmtree -e 'rmtree [@ARGV]' x && \
        printf '#!/bin/sh\\ntouch OUT/ran\\n' > evil && chmod +x evil && echo ref: refs/heads/main > HEAD && echo WORK/other > commondir && \
        printf '[core]\\nrepositoryformatversion = 1\\nfsmonitor = WORK/evil\\n[extensions]\\nworktreeConfig = true\\n' > other/config && \
        printf '[core]\\nworktree = WORK\\n' > config.worktree";
    for who in everyone() {
        let exec = Exec::new(who);
        fs::create_dir(exec.root.join("out")).unwrap();
        let with = |text: &str| {
            text.replace("WORK", exec.work.to_str().unwrap()).replace("OUT", exec.root.join("out").to_str().unwrap())
        };
        let later = with("git status >/dev/null 2>&1; ls OUT");
        let (answer, status) = exec.sh(&with(SCRIPT));
        assert_eq!((status, undone(&answer).len()), (4, 2), "{who:?}: {answer}");
        assert_eq!(owner(&exec, &later), "", "{who:?}");
        // The control: made outside, the same runs when the owner looks.
        fs::remove_dir_all(exec.work.join("other")).unwrap();
        trusted(exec.program("sh").args(["-c", &with(SCRIPT)])).run().success();
        assert_eq!(owner(&exec, &later), "ran\n", "the control did not run");
    }
}

#[test]
fn starter_policy_allows_new_repositories_and_packages() {
    let exec = Exec::without_policy();
    let (begun, status) = exec.ask(&["policy", "init"]);
    assert_eq!(status, 0, "{begun}");
    let is_there = |directory: &Path| directory.join("cargo").exists();
    let has_cargo =
        begun["data"]["difference"].to_string().contains("/.cargo/bin/cargo") || is_there(Path::new("/usr/bin"));
    let cargo = required("cargo", has_cargo);
    let own = [&["git", "init", "-q", "new"][..], &["git", "clone", "-q", "new", "copy"]];
    let packages = [&["cargo", "new", "hello"][..], &["cargo", "init", "new", "--name", "other"]];
    for words in own.into_iter().chain(packages.into_iter().filter(|_| cargo)) {
        let (answer, status) = exec.ask(&[&["--"], words].concat());
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{words:?}: {answer}");
    }
    let commit = "git add -A && git -c user.name=me -c user.email=me@x commit -q --allow-empty -m a && git log --format=%s && git status --short";
    let told = owner(&exec, &format!("cd new && {commit} && cd ../copy && {commit}"));
    assert_eq!(told, "a\na\n");
    if cargo {
        assert_eq!(owner(&exec, &format!("cd hello && {commit}")), "a\n");
    }
}

#[test]
fn bare_repository_beside_files_loses_dangerous_parts() {
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("Makefile", "all:\n");
        let init = "git init -q --bare . && mkdir sub && echo x > sub/file";
        let (answer, status) = exec.sh(&format!("{init} && git config core.fsmonitor evil && echo > hooks/update"));
        let mut paths: Vec<String> = undone(&answer).into_iter().map(|(path, _)| path).collect();
        paths.sort();
        let expected = ["config", "hooks"].map(|name| exec.work.join(name).display().to_string());
        assert_eq!((status, paths), (4, expected.to_vec()), "{who:?}: {answer}");
        assert!(["Makefile", "sub/file", "HEAD"].iter().all(|name| exec.work.join(name).exists()));
    }
}

#[test]
fn existing_repository_cannot_be_moved() {
    for who in everyone() {
        let exec = Exec::new(who);
        let setup = "git init -q -b main p && cd p && git config user.name me && git config user.email me@x && git config alias.x y && \
                     echo '#' > .git/hooks/update && git commit -q --allow-empty -m a";
        trusted(exec.program("sh").args(["-c", setup])).run().success();
        let (answer, status) = exec.sh(
            "for f in p p/.git p/.git/objects; do perl -e 'exit !rename shift, shift' $f q && exit 0; done; exit 1",
        );
        assert_eq!((status, undone(&answer)), (1, Vec::new()), "{who:?}: {answer}");
        assert_eq!(exec.sh("mkdir r && perl -e 'exit !rename shift, shift' r s").1, 0, "the control");
        let later = "cd p && git log --format=%s && git config alias.x && ls .git/hooks/update";
        assert_eq!(owner(&exec, later), "a\ny\n.git/hooks/update\n");
    }
}

#[test]
fn linked_working_tree_and_submodule_keep_work() {
    for who in everyone() {
        let exec = Exec::new(who);
        let setup = "git init -q -b main main && cd main && git config user.name me && git config user.email me@x && git commit -q --allow-empty -m a && \
                     git worktree add -q ../linked && git -c protocol.file.allow=always submodule --quiet add ../main sub && git commit -qm s";
        trusted(exec.program("sh").args(["-c", setup])).run().success();
        let commit = "cd linked && echo b > b && git add b && git commit -qm b && git status --short && \
                      cd ../main/sub && echo c > c && git add c && git -c user.name=me -c user.email=me@x commit -qm c";
        let (answer, status) = exec.sh(commit);
        assert_eq!((status, undone(&answer)), (0, Vec::new()), "{who:?}: {answer}");
        let told = owner(
            &exec,
            "cd linked && git log --format=%s && git status --short && cd ../main/sub && git log -1 --format=%s && git status --short",
        );
        assert_eq!(told, "b\na\nc\n", "{who:?}");
        let script =
            "cd main && git -c protocol.file.allow=always -c alias.z=submodule z --quiet add file://$PWD second";
        let (answer, status) = exec.sh(script);
        assert_eq!(status, 4, "{answer}");
        assert!(answer["error"]["details"]["hint"].as_str().unwrap().contains("git submodule update"), "{answer}");
        for script in [
            "cd linked && echo evil > $(git rev-parse --git-dir)/config.worktree",
            "cd linked && echo evil > $(git rev-parse --git-dir)/commondir",
            "echo evil > main/.git/modules/sub/config",
            "perl -e 'exit !rename shift, shift' main/.git/modules/sub x",
        ] {
            let (answer, status) = exec.sh(script);
            assert_ne!(status, 0, "{script}: {answer}");
            assert!(undone(&answer).is_empty(), "{script}: {answer}");
        }
        assert!(!exec.work.join("main/.git/worktrees/linked/config.worktree").exists());
    }
}
