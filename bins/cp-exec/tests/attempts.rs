//! Attempts by a program inside the sandbox, each beside its control: the same attempt by the same program outside.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::exec::{Exec, SCRIPT, details};

/// The result of an attempt: `done` or `refused`.
pub(crate) type Said = BTreeMap<String, String>;

const PRELUDE: &str = include_str!("data/python/attempts.py");

fn said(output: &str) -> Said {
    let pairs = output.lines().filter_map(|line| line.split_once(' '));
    let pairs = pairs.filter(|(_, what)| ["done", "refused"].contains(what));
    pairs.map(|(name, what)| (name.to_owned(), what.to_owned())).collect()
}

/// Runs a probe inside, and gives what it says and the whole result.
#[track_caller]
pub(crate) fn inside(exec: &Exec, script: &str) -> (Said, Value) {
    inside_with(exec, &[], script)
}

/// The same with options of cp-exec.
#[track_caller]
pub(crate) fn inside_with(exec: &Exec, options: &[&str], script: &str) -> (Said, Value) {
    exec.write("probe.py", &format!("{PRELUDE}\n{script}"));
    let probe = ["--timeout", "20", "--", "python3", "-c", SCRIPT, "probe.py"];
    let (answer, _) = exec.ask(&[options, &probe].concat());
    let result = details(&answer);
    let output = result["stdout"].as_str().unwrap_or_else(|| panic!("it did not run: {answer}"));
    assert_eq!(result["return_code"], 0, "{answer}");
    (said(output), result.clone())
}

/// Runs a probe outside, as the same user in the same directory.
#[track_caller]
pub(crate) fn outside(exec: &Exec, script: &str) -> Said {
    let program = exec.program("python3").args(["-c", &format!("{PRELUDE}\n{script}")]);
    said(&exec.as_user(program).run().success().stdout)
}

/// Runs a probe inside, where each attempt must be refused, and then outside, where each must be done. `controls` are
/// done in both.
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
