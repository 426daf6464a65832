//! A directory to work in, and the program in it.

use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;

pub(crate) struct At {
    dir: tempfile::TempDir,
}

impl At {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program, in the directory, with a home of its own and nothing else from the environment.
    pub(crate) fn cp_log(&self, arguments: &[&str]) -> Command {
        let mut command = Command::cargo_bin("cp-log").unwrap();
        command.current_dir(self.dir.path()).env_clear().env("CP_HOME", self.path("home")).args(arguments);
        command
    }

    /// What the program prints when it succeeds: one JSON value for each line.
    pub(crate) fn lines(&self, arguments: &[&str], input: &str) -> Vec<Value> {
        let done = self.cp_log(arguments).write_stdin(input).assert().success();
        parsed(&done.get_output().stdout)
    }

    /// The closing line of a run that must exit with `exit`.
    pub(crate) fn closing(&self, arguments: &[&str], input: &str, exit: i32) -> Value {
        let done = self.cp_log(arguments).write_stdin(input).assert().code(exit);
        let lines = parsed(&done.get_output().stdout);
        let closing = lines.last().expect("a closing line").clone();
        assert!(closing.get("meta").is_some(), "{closing}");
        assert_eq!(closing["ok"] == true, exit == 0, "{closing}");
        closing
    }

    /// The lines of a ledger.
    pub(crate) fn stored(&self, name: &str) -> Vec<Value> {
        parsed(&std::fs::read(self.path(name)).unwrap())
    }

    /// A ledger of so many lines, the opening one included.
    pub(crate) fn ledger(&self, name: &str, lines: usize) {
        let input = (1..lines).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        self.lines(&["append", "-f", name, "--event", "tick", "--sync", "none"], &input);
    }
}

pub(crate) fn parsed(bytes: &[u8]) -> Vec<Value> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}
