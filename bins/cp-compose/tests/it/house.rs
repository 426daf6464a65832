//! A home of its own for each test, and a directory with the program and a stand-in for `cp-session`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

pub(crate) struct House {
    pub(crate) root: tempfile::TempDir,
}

/// What a command line came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl House {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bin")).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_cp-compose"));
        let here = root.path().join("bin/cp-compose");
        if std::fs::hard_link(program, &here).is_err() {
            std::fs::copy(program, &here).unwrap();
        }
        Self { root }
    }

    /// Makes the stand-in: it notes how it was called and prints `line`.
    pub(crate) fn session_says(&self, line: &str) {
        let script = format!("#!/bin/sh\nprintf '%s\\n' \"$*\" > called\ncat <<'END'\n{line}\nEND\n");
        let file = self.root.path().join("bin/cp-session");
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn called(&self) -> String {
        std::fs::read_to_string(self.root.path().join("called")).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = self.root.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.feed(arguments, "")
    }

    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = Command::new(self.root.path().join("bin/cp-compose"));
        command.env_clear().env("CP_HOME", self.root.path()).env("PATH", "/usr/bin:/bin");
        let output = command.current_dir(self.root.path()).args(arguments).write_stdin(input).output().unwrap();
        Ran {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// The last line.
    pub(crate) fn closing(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_else(|| panic!("no output; stderr: {}", self.stderr));
        serde_json::from_str(line).unwrap()
    }

    pub(crate) fn data(&self) -> Value {
        let closing = self.closing();
        assert_eq!((closing["ok"].as_bool(), self.exit), (Some(true), 0), "{closing}");
        closing["data"].clone()
    }

    /// Asserts that it failed so, and gives the error.
    pub(crate) fn failed(&self, exit: i32, code: &str) -> Value {
        let error = self.closing()["error"].clone();
        assert_eq!((self.exit, error["code"].as_str()), (exit, Some(code)), "{self:?}");
        error
    }
}
