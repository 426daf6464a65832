//! Commands that agents type, recorded and made up: under the policy that `policy init --for .` writes, they do in the
//! sandbox what they do in a plain shell, and those that destroy or publish do not run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use cp_testkit::{counterpart, is_long, times};
use serde::Deserialize;
use serde_json::Value;

use crate::exec::{Exec, details};

/// A command of a corpus.
#[derive(Deserialize)]
struct Typed {
    kind: String,
    command: String,
    /// True if one of its programs is refused because it discards or publishes something or leaves the sandbox.
    #[serde(default)]
    refused: bool,
}

/// The effect of a command on standard output and on the files of the project.
#[derive(Debug, PartialEq)]
struct Effect {
    stdout: String,
    status: Option<i64>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// A project of several languages, with a change that is not committed.
const FILES: &str = include_str!("data/projects/everyday.txt");

const REPOSITORY: &str = "git init -q -b main . && git config user.name n && git config user.email n@example.org && \
    git add -A && git commit -qm first && echo more >>README.md";

/// The commands of one corpus: those that are refused and every ninth other, or with `CP_LONG=1` all.
fn corpus(text: &str) -> Vec<Typed> {
    let step = times(9, 1);
    let all = text.lines().map(|line| serde_json::from_str::<Typed>(line).unwrap()).enumerate();
    all.filter(|(at, typed)| typed.refused || at % step == 0).map(|(_, typed)| typed).collect()
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".git" => left.push(path),
                Ok(kind) if kind.is_file() => _ = found.insert(path.clone(), fs::read(path).unwrap_or_default()),
                _ => {}
            }
        }
    }
    let below = |path: PathBuf| path.strip_prefix(directory).unwrap().to_owned();
    found.into_iter().map(|(path, bytes)| (below(path), bytes)).collect()
}

/// A copy of the project.
fn copy(from: &Path, to: &Path) {
    _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// The effect in a plain shell, which can reach nothing but a copy of the project. None if it takes longer than a few
/// seconds, as programs do that wait for the network.
fn plain(bwrap: &Path, exec: &Exec, line: &str) -> Option<Effect> {
    let control = exec.root.join("control");
    copy(&exec.root.join("project"), &control);
    let work = exec.work.to_str().unwrap();
    let mut shell = Command::new("timeout");
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    shell.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("CARGO_NET_OFFLINE", "true");
    shell.env("CARGO_HOME", home.join(".cargo")).env("RUSTUP_HOME", home.join(".rustup"));
    shell.args(["-k", "1", "4"]).arg(bwrap).args(["--unshare-all", "--new-session", "--die-with-parent"]);
    shell.args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/tmp/home"]);
    shell.args(["--perms", "0755", "--dir"]).arg(exec.work.parent().unwrap());
    shell.arg("--bind").arg(&control).args([work, "--chdir", work, "--setenv", "HOME", "/tmp/home"]);
    shell.args(["--setenv", "TMPDIR", "/tmp", "bash", "-c", "--", line]).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let status = output.status.code().map(i64::from);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    (![None, Some(124), Some(137)].contains(&status)).then(|| Effect { stdout, status, files: files(&control) })
}

fn contained(exec: &Exec, line: &str) -> (Effect, Value) {
    let work: &Path = &exec.work;
    copy(&exec.root.join("project"), work);
    let (answer, _) = exec.ask(&["--timeout", "10", "-c", line]);
    let result = details(&answer);
    let stdout = result["stdout"].as_str().unwrap_or_default().to_owned();
    // As a shell gives it.
    let status = result["return_code"].as_i64().or_else(|| result["signal"].as_i64().map(|signal| 128 + signal));
    (Effect { stdout, status, files: files(work) }, answer)
}

/// Runs the commands of a corpus, of which a share must do what they do in a plain shell. A sample may miss the share
/// by a little.
fn compare(text: &str, share: f64) {
    let share = if is_long() { share } else { share - 0.05 };
    let Some(bwrap) = counterpart("bwrap") else { return };
    let exec = Exec::without_policy();
    exec.unpack(FILES);
    exec.shell("sh", REPOSITORY).run().success();
    let path = std::env::var_os("PATH").unwrap();
    exec.command(&["policy", "init", "--for", "."]).env("PATH", path).run().success();
    // A command publishes something only if it reaches others.
    let policy = exec.home.join("config/policy.toml");
    let written = fs::read_to_string(&policy).unwrap();
    assert!(written.contains("network = []"));
    fs::write(policy, written.replace("network = []", "network = [\"example.org\"]")).unwrap();
    // The first run keeps the history of the repository, in a directory of it.
    exec.command(&["--", "true"]).run().success();
    copy(&exec.work, &exec.root.join("project"));
    let (mut same, mut measured, mut report, mut wrong) = (0, 0, Vec::new(), Vec::new());
    let mut allowed = 0;
    for Typed { kind, command, refused } in corpus(text) {
        let (effect, answer) = contained(&exec, &command);
        let has_some = |denied: &Value| denied.as_array().is_some_and(|denied| !denied.is_empty());
        let is_denied = has_some(&answer["error"]["details"]["denied"]) || has_some(&answer["data"]["denied"]);
        if is_denied != refused {
            wrong.push(format!("{kind}: {command}: refused: {is_denied}: {answer}"));
        }
        if refused {
            continue;
        }
        allowed += 1;
        let Some(expected) = plain(&bwrap, &exec, &command) else { continue };
        if effect != expected {
            // Times, hashes of commits and the like differ from one plain run to the next.
            thread::sleep(Duration::from_millis(1100));
            if plain(&bwrap, &exec, &command).as_ref() != Some(&expected) {
                continue;
            }
        }
        measured += 1;
        if effect == expected {
            same += 1;
        } else {
            report.push(format!("{kind}: {command}\n  {answer}\n  plain: {:?} {:?}", expected.status, expected.stdout));
        }
    }
    let (report, wrong) = (report.join("\n"), wrong.join("\n"));
    assert!(2 * measured > allowed, "only {measured} of {allowed} commands have a plain run to compare with");
    assert!(f64::from(same) >= share * f64::from(measured), "{same} of {measured}\n{report}\n{wrong}");
    assert_eq!(wrong, "", "{same} of {measured}\n{report}");
}

#[test]
fn everyday_commands_behave_as_in_plain_shell() {
    compare(include_str!("data/commands/built.jsonl"), 0.95);
}

#[test]
fn unknown_commands_behave_as_in_plain_shell() {
    compare(include_str!("data/commands/held.jsonl"), 0.9);
}
