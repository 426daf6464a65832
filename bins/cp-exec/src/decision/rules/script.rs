//! Interpreters: a script must lie in an execute path, and nothing else is run.

use std::path::Path;

use super::finding::{Finding, Risk};
use crate::arguments::Arguments;
use crate::policy::{Access, Policy};
use crate::refusal::denied;

/// The rule about the file that an interpreter is to run.
pub(super) const SCRIPT: &str = "interpreter.script";

/// What an interpreter is asked about itself.
const ABOUT: [&str; 6] = ["--version", "-V", "-v", "--help", "-h", "-VV"];

/// Judges what an interpreter would run. Code from standard input is code of unknown origin.
pub(super) fn judge(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Finding {
    let name = arguments.name();
    // A module of Python is looked up among what is installed, or in the working directory like a test runner's tests.
    if name.starts_with("py") && arguments.values_of(&["-m"]).next().is_some() {
        return Finding::allowed(Risk::Medium);
    }
    let may_run = |path: &str| {
        let full = cp_common::home::resolved(&cwd.join(path));
        policy.bounds.lists(Access::Execute, &full) || policy.is_tool(&full)
    };
    // What it finds there, or is named: all of them are scripts.
    if name.starts_with("node") && arguments.has_option(&["--test"]) {
        let named: Vec<&str> = arguments.operands().map(|operand| operand.word).collect();
        let tests = if named.is_empty() { vec!["."] } else { named };
        return match tests.iter().find(|path| !may_run(path)) {
            None => Finding::allowed(Risk::Medium),
            Some(path) => Finding::denied(SCRIPT, denied("execute", &cwd.join(path)).message()),
        };
    }
    let Some(path) = arguments.script() else {
        let words = arguments.words();
        if !words.is_empty() && words.iter().all(|word| ABOUT.contains(&word.as_str())) {
            return Finding::allowed(Risk::Low);
        }
        return Finding::denied("interpreter.stdin", format!("`{name}` without a script runs its standard input"));
    };
    if path == "-" || path.starts_with("/dev/") || path.starts_with("/proc/") {
        return Finding::denied("interpreter.stdin", format!("`{name} {path}` runs its input"));
    }
    if may_run(path) {
        return Finding::allowed(Risk::Medium);
    }
    Finding::denied(SCRIPT, denied("execute", &cp_common::home::resolved(&cwd.join(path))).message())
}
