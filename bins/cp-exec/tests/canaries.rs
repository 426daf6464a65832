//! Each rule beside what it is against: the command line is run as it is, and does what the rule says; asked of
//! cp-exec, it does nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use cp_testkit::{counterpart, required};
use serde_json::json;

use crate::exec::{Exec, Who, rows};

/// `rule TAB program TAB command line TAB input`.
const CANARIES: &str = include_str!("data/canaries.tsv");

/// Every program of the list by name, so that each refusal comes from a rule.
fn policy() -> String {
    let programs: BTreeSet<&str> = lines().map(|line| line.program).collect();
    format!(
        "[exec]
allowed_commands = {:?}
intent = \"off\"
network = [\"example.org\"]
[paths]
write = [\".\"]
",
        Vec::from_iter(programs)
    )
}

struct Line {
    rule: &'static str,
    program: &'static str,
    text: &'static str,
    input: &'static str,
}

fn lines() -> impl Iterator<Item = Line> {
    rows(CANARIES).map(|[rule, program, text, input]| Line { rule, program, text, input })
}

/// A project with work to lose.
const PROJECT: &str = include_str!("data/canaries.sh");

fn project(at: &Path) {
    let made = Command::new("bash").args(["-c", PROJECT]).current_dir(at).env("HOME", at).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// The files of a project, except for internal files of git and caches.
fn seen(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    gather(at, at, &mut files);
    files
}

fn gather(root: &Path, at: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    const ASIDE: [&str; 9] =
        ["index", "logs", "objects", "ORIG_HEAD", "FETCH_HEAD", ".npm", ".cache", "input", "__pycache__"];
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if ASIDE.contains(&name) {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            gather(root, &path, files);
        } else {
            let mode = fs::read_link(&path)
                .map_or_else(|_| fs::read(&path).unwrap(), |to| to.as_os_str().as_encoded_bytes().to_vec());
            files.insert(path.strip_prefix(root).unwrap().display().to_string(), mode);
        }
    }
}

/// True if the effect that a rule prevents has occurred: a canary exists, or an existing file was changed or removed.
fn happened(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) -> bool {
    let appeared = |name: &String| name.ends_with("canary") || name.contains("refs/") && !before.contains_key(name);
    after.keys().any(appeared) || before.iter().any(|(name, bytes)| after.get(name) != Some(bytes))
}

fn copied(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

#[test]
fn git_rule_prevents_effect_that_happens_without_it() {
    assert!(checked(|line| line.program == "git") > 40);
}

#[test]
fn rule_prevents_effect_that_happens_without_it() {
    assert!(checked(|line| line.program != "git") > 14);
}

/// Checks these lines, and says how many there were.
fn checked(these: impl Fn(&Line) -> bool) -> usize {
    let exec = Exec::with_policy(Who::Me, &policy());
    project(&exec.work);
    let template = tempfile::tempdir().unwrap();
    copied(&exec.work, &template.path().join("project"));
    let git = Command::new("git").args(["config", "set", "-h"]).output().unwrap();
    let has_config_set = String::from_utf8_lossy(&git.stdout).contains("git config set");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in lines().filter(these) {
        if ["npm", "python3"].contains(&line.program) && counterpart(line.program).is_none() {
            continue;
        }
        if line.text.starts_with("git config set") && !required("git 2.46 for git config set", has_config_set) {
            continue;
        }
        count += 1;
        let outside = template.path().join("outside");
        copied(&template.path().join("project"), &outside);
        let before = seen(&outside);
        control(&outside, &line);
        if !happened(&before, &seen(&outside)) {
            wrong.push(format!("{}\t{}\n    does nothing outside", line.rule, line.text));
        }
        fs::remove_dir_all(&outside).unwrap();

        let before = seen(&exec.work);
        let arguments = json!({"command": line.text, "stdin": line.input});
        let request = json!({"tool": "shell", "operation": "execute_command", "arguments": arguments}).to_string();
        let answer = exec.answers(&[], &request).0.remove(0);
        if answer["error"]["details"]["rule"] != line.rule {
            wrong.push(format!("{}\t{}\n    {answer}", line.rule, line.text));
        }
        if before != seen(&exec.work) {
            wrong.push(format!("{}\t{}\n    changed something", line.rule, line.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    count
}

/// Runs a command line as it is.
fn control(at: &Path, line: &Line) {
    let mut child = Command::new("bash")
        .args(["-c", line.text])
        .current_dir(at)
        .env("HOME", at)
        .env("GIT_PAGER", "cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), format!("{}\n", line.input).as_bytes()).unwrap_or(());
    child.wait().unwrap();
}
