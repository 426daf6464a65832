//! Requirements of a test that this repository does not provide: programs of others, permissions, features of the
//! kernel.
//!
//! A test that returns early passes, and nobody reads its output. Therefore, where every counterpart is expected to
//! exist (`CI=true`, or `CP_COUNTERPARTS` set), a missing one fails the test.

use std::path::{Path, PathBuf};

/// Locates a program installed by `.ci/run`, else one on `PATH`. A missing program was reported if this returns `None`.
///
/// ```
/// # fn test() {
/// let Some(jq) = cp_testkit::counterpart("jq") else { return };
/// # drop(jq);
/// # }
/// ```
#[must_use = "a test without its counterpart cannot go on"]
#[track_caller]
pub fn counterpart(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if required(name, found.is_some()) { found } else { None }
}

/// Returns `is_there`, the availability of a requirement, and reports a missing one.
///
/// ```
/// # fn test(is_root: bool) {
/// if !cp_testkit::required("the rights of root", is_root) {
///     return;
/// }
/// # }
/// ```
#[must_use = "a test without what it needs cannot go on"]
#[track_caller]
#[expect(clippy::print_stderr, reason = "a test that was skipped must not look like one that ran")]
pub fn required(what: &str, is_there: bool) -> bool {
    if !is_there {
        assert!(!all_are_expected(), "{what} is not there, and no test may be skipped here");
        eprintln!("skipped: {what} is not there");
    }
    is_there
}

/// Returns the directory in which `.ci/run` installs packages for tests.
pub fn packages() -> PathBuf {
    let elsewhere = std::env::var_os("CP_COUNTERPARTS_DIR").map(PathBuf::from);
    elsewhere.unwrap_or_else(|| crate::repository().join(".ci/packages"))
}

/// Returns the virtual environment with the pytest that `.ci/run` installs. The script's first line has its path,
/// because a copy of the environment would not work. A missing one was reported if this returns `None`.
#[must_use = "a test without its counterpart cannot go on"]
#[track_caller]
pub fn pytest_environment() -> Option<PathBuf> {
    let script = std::fs::read_to_string(packages().join("python/bin/pytest")).unwrap_or_default();
    let interpreter = script.lines().next().and_then(|line| line.strip_prefix("#!")).map(Path::new);
    let root = interpreter.and_then(|file| file.ancestors().nth(2)).filter(|root| root.join("bin/pytest").is_file());
    if required("pytest (.ci/run installs it)", root.is_some()) { root.map(Path::to_owned) } else { None }
}

fn all_are_expected() -> bool {
    std::env::var_os("CP_COUNTERPARTS").is_some() || std::env::var("CI").is_ok_and(|ci| ci == "true")
}

fn find(name: &str) -> Option<PathBuf> {
    let ours = ["python/bin", "node_modules/.bin"].map(|below| packages().join(below));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = ours.into_iter().chain(std::env::split_paths(&path));
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counterpart_finds_installed_program() {
        assert!(counterpart("sh").is_some_and(|path| path.is_absolute()));
    }

    /// Run by the test below in an environment of its choice.
    #[test]
    fn needs_missing_program() {
        if std::env::var_os("TESTKIT_NEEDS_WHAT_NOBODY_HAS").is_some() {
            assert!(counterpart("a-program-that-nobody-has").is_none());
        }
    }

    #[test]
    fn missing_program_is_reported_and_fails_only_if_expected() {
        for (variable, passes) in [("CI=", true), ("CI=true", false), ("CP_COUNTERPARTS=1", false)] {
            let mut command = std::process::Command::new("env");
            command.args(["-u", "CI", "-u", "CP_COUNTERPARTS", variable]).arg(std::env::current_exe().unwrap());
            command.args(["--exact", "counterpart::tests::needs_missing_program", "--nocapture"]);
            let ran = command.env("TESTKIT_NEEDS_WHAT_NOBODY_HAS", "1").output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.status.success(), passes, "{variable}: {said}");
            assert!(said.contains("a-program-that-nobody-has is not there"), "{variable}: {said}");
        }
    }
}
