//! A home of its own for each test, and a directory with the program and a stand-in for `cp-session`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use assert_cmd::Command;

use crate::ran::Ran;

pub(crate) struct House {
    pub(crate) root: tempfile::TempDir,
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
        Ran::of(&output)
    }
}
