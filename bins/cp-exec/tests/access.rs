//! The access matrix: what a command may do with each of many paths under each of many policies, as root and as an
//! ordinary user, and the mounts of its view. `data/access/access.txt` is the result; `UPDATE=1` writes it anew, and a
//! change of it is a change of what policies mean.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::exec::{Exec, POLICY, Who, details, everyone, policy_with};

const POLICIES: &str = include_str!("data/access/policies.txt");
const PATHS: &str = include_str!("data/access/paths.txt");
const PROBE: &str = include_str!("data/access/probe.py");

/// Files of each kind, below the directory that `@` stands for. Those with a line of a script can be executed.
const FILES: &str = "work/a work/sub/a work/sub/deep/a work/sub/x.key work/sub/.env work/lib/keep work/lib/deep/a work/secret/a \
    work/secret/x.key work/.env work/.claude/settings.json work/.vscode/tasks.json work/Makefile outside/file outside/secret \
    user/.config/x user/.cache/x user/.ssh/id_ed25519 user/.bashrc";
const SCRIPTS: &str = "work/tool work/sub/run work/lib/run work/bin/tool work/target/built outside/run";

/// The name of a policy, what it adds to `[exec]`, and its other tables.
fn policies() -> Vec<(&'static str, String)> {
    let blocks = POLICIES.split("# ").skip(1);
    let policy = |block: &'static str| {
        let (name, text) = block.split_once('\n').unwrap();
        let (exec, tables) = text.split_at(text.find("[paths]").unwrap_or(text.len()));
        (name, format!("{}\n{tables}", policy_with(exec)))
    };
    blocks.map(policy).collect()
}

/// What the probe prints under one policy: a path or a mount, and what may be done with it.
fn probed(who: Who, policy: &str) -> Vec<(String, String)> {
    let exec = Exec::with_policy(who, POLICY);
    let root = exec.root.to_str().unwrap().to_owned();
    for name in FILES.split_whitespace() {
        exec.root.write(name, "text\n");
    }
    for name in SCRIPTS.split_whitespace() {
        exec.root.executable(name, "#!/bin/sh\n");
    }
    symlink("sub", exec.work.join("link-in")).unwrap();
    symlink(exec.root.join("outside"), exec.work.join("link-out")).unwrap();
    let hook = "printf '#!/bin/sh\\n' >.git/hooks/post-commit && chmod +x .git/hooks/post-commit";
    exec.shell("sh", &format!("git init -q . && {hook}")).run().success();
    exec.policy(&policy.replace('@', &root));
    // The paths are no arguments, because arguments are judged before the start.
    let input = format!("{root}\n{}", PATHS.replace('@', &root));
    let (answers, _) = exec.answers(&["--stdin", "-", "--", "python3", "-c", PROBE], &input);
    let answer = answers.last().unwrap();
    let Some(printed) = details(answer)["stdout"].as_str() else {
        let reason = answer["error"]["message"].as_str().unwrap_or_default().replace(&root, "@");
        return vec![("refused:".to_owned(), reason)];
    };
    assert_eq!(details(answer)["return_code"], 0, "{policy}: {answer}");
    let line = |line: &str| line.split_once(' ').map(|(what, may)| (what.to_owned(), may.to_owned())).unwrap();
    printed.lines().map(line).collect()
}

/// The block of one policy: what is the same for root and an ordinary user once, else what root may do first.
fn block(name: &str, policy: &str) -> String {
    let mut of_users = everyone().into_iter().map(|who| probed(who, policy));
    let (first, second) = (of_users.next().unwrap(), of_users.next());
    let mut block = format!("{name}\n");
    for (at, (what, may)) in first.iter().enumerate() {
        match second.as_ref().map(|second| &second[at]) {
            Some((path, other)) if other != may => writeln!(block, "{what} {may} {other}").unwrap(),
            _ => writeln!(block, "{what} {may}").unwrap(),
        }
    }
    block
}

#[test]
fn access_under_each_policy_is_as_recorded() {
    cp_testkit::needs!("python3");
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/access/access.txt"));
    let policies = policies();
    let found = std::thread::scope(|scope| {
        let blocks = |share: &[(&str, String)]| {
            share.iter().map(|(name, policy)| format!("# {}\n", block(name, policy))).collect::<Vec<_>>().concat()
        };
        let shares = policies.chunks(policies.len().div_ceil(4)).map(|share| scope.spawn(move || blocks(share)));
        shares.collect::<Vec<_>>().into_iter().map(|share| share.join().unwrap()).collect::<String>()
    });
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &found).unwrap();
    }
    let recorded = fs::read_to_string(&file).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    for (found, recorded) in found.lines().zip(recorded.lines()) {
        // An ordinary user knows the last column only.
        let same = found == recorded || !is_root && found.split(' ').next_back() == recorded.split(' ').next_back();
        assert!(same, "now: {found}\nwas: {recorded}");
    }
    assert_eq!(found.lines().count(), recorded.lines().count());
}
