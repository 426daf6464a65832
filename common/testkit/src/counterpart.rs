//! What a test needs that this repository does not provide: programs of others, permissions, features of the kernel.
//!
//! `tests/programs.tsv` lists the programs. A machine with only Rust, jq, a C linker and git runs every other test.
//!
//! A test that returns early passes, and nobody reads its output. Therefore, where everything is expected to exist
//! (`CI=true`, or `CP_COUNTERPARTS` set), something missing fails the test.

use std::path::{Path, PathBuf};

use crate::program::SYSTEM_PATH;

/// Ends the test here if one of these programs is missing, and reports it.
///
/// ```
/// # fn test() {
/// cp_testkit::needs!("curl", "strace");
/// # }
/// ```
#[macro_export]
macro_rules! needs {
    ($($name:expr),+) => {
        $(if $crate::counterpart($name).is_none() {
            return;
        })+
    };
}

/// Locates a program of `tests/programs.tsv`. A missing program was reported if this returns `None`. [`needs!`] is for
/// a test that uses the program by its name.
///
/// ```
/// # fn test() {
/// let Some(strace) = cp_testkit::counterpart("strace") else { return };
/// # drop(strace);
/// # }
/// ```
#[must_use = "a test without its counterpart cannot go on"]
#[track_caller]
pub fn counterpart(name: &str) -> Option<PathBuf> {
    let mut listed = TABLE.lines().filter_map(|row| row.split_once('\t'));
    let row = listed.find(|(program, _)| *program == name);
    let (_, rest) = row.unwrap_or_else(|| panic!("tests/programs.tsv has no row for {name}: add it"));
    let found = find(name, !rest.starts_with(".ci/run\t"));
    if required(name, found.is_some()) { found } else { None }
}

const TABLE: &str = include_str!("../../../tests/programs.tsv");

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
        eprintln!("not run: needs {what}");
        assert!(!all_are_expected(), "{what} is missing, and every test must run here");
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

/// Returns the program as `.ci/run` installed it, or as the tests find it by its name. What is not a package of Debian
/// is where its installer puts it, which is on the caller's path.
fn find(name: &str, is_of_debian: bool) -> Option<PathBuf> {
    let ours = ["python/bin", "node_modules/.bin"].map(|below| packages().join(below));
    let callers = std::env::var_os("PATH").filter(|_| !is_of_debian).unwrap_or_default();
    let places = ours.into_iter().chain(std::env::split_paths(SYSTEM_PATH)).chain(std::env::split_paths(&callers));
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run by the test below in an environment of its choice, which has no programs but those of the system.
    #[test]
    fn needs_missing_program() {
        if std::env::var_os("TESTKIT_NEEDS_WHAT_IS_MISSING").is_some() {
            needs!("llm");
            panic!("the test went on");
        }
    }

    #[test]
    fn missing_program_is_reported_and_fails_only_if_expected() {
        for (variable, passes) in [("CI=", true), ("CI=true", false), ("CP_COUNTERPARTS=1", false)] {
            let mut command = std::process::Command::new("env");
            command.args([
                "-u",
                "CI",
                "-u",
                "CP_COUNTERPARTS",
                "CP_COUNTERPARTS_DIR=/nowhere",
                "PATH=/nowhere",
                variable,
            ]);
            command.arg(std::env::current_exe().unwrap());
            command.args(["--exact", "counterpart::tests::needs_missing_program", "--nocapture"]);
            let ran = command.env("TESTKIT_NEEDS_WHAT_IS_MISSING", "1").output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.status.success(), passes, "{variable}: {said}");
            assert!(said.contains("not run: needs llm"), "{variable}: {said}");
        }
    }

    #[test]
    #[should_panic(expected = "tests/programs.tsv has no row for sh")]
    fn program_without_a_row_is_a_fault() {
        let _ = counterpart("sh");
    }
}
