//! Attempts by a program inside the sandbox, each beside its control: the same attempt by the same program outside.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::exec::{Exec, SCRIPT, Who};

/// The result of an attempt: `done` or `refused`.
pub(crate) type Said = BTreeMap<String, String>;

const PRELUDE: &str = r#"
import ctypes, errno, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    result = libc.syscall(number, *args)
    if result < 0: raise OSError(ctypes.get_errno(), "syscall")
    return result
def attempt(name, f):
    try:
        f(); print(name, "done", flush=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        print(name, "refused", flush=True)
"#;

fn said(output: &str) -> Said {
    let pairs = output.lines().filter_map(|line| line.split_once(' '));
    let pairs = pairs.filter(|(_, what)| ["done", "refused"].contains(what));
    pairs.map(|(name, what)| (name.to_owned(), what.to_owned())).collect()
}

/// Runs a probe inside, and gives what it says and the whole result.
#[track_caller]
pub(crate) fn inside(exec: &Exec, script: &str) -> (Said, Value) {
    exec.write("probe.py", &format!("{PRELUDE}\n{script}"));
    let (answer, _) = exec.ask(&["--timeout", "20", "--", "python3", "-c", SCRIPT, "probe.py"]);
    let result = if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] };
    let output = result["stdout"].as_str().unwrap_or_else(|| panic!("it did not run: {answer}"));
    assert_eq!(result["return_code"], 0, "{answer}");
    (said(output), result.clone())
}

/// Runs a probe outside, as the same user in the same directory.
#[track_caller]
pub(crate) fn outside(exec: &Exec, script: &str) -> Said {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{PRELUDE}\n{script}")]).current_dir(&*exec.work);
    if exec.who == Who::Ordinary {
        command.uid(1000).gid(1000);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    said(&String::from_utf8_lossy(&output.stdout))
}

/// Runs a probe inside, where each attempt must be refused, and then outside, where each must be done. `controls` are done in both.
#[track_caller]
pub(crate) fn refused_only_inside(exec: &Exec, controls: &[&str], script: &str) {
    let (found, result) = inside(exec, script);
    let control = outside(exec, script);
    assert!(!found.is_empty() && found.len() == control.len(), "{found:?} {control:?} {result}");
    for (name, what) in &found {
        let expected = if controls.contains(&name.as_str()) { "done" } else { "refused" };
        assert_eq!(what, expected, "{:?} {name} inside: {result}", exec.who);
        assert_eq!(control[name], "done", "{:?} {name} outside", exec.who);
    }
    for name in controls {
        assert!(found.contains_key(*name), "{name} was not attempted");
    }
}
