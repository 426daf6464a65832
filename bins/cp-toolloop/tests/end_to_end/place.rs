//! A place for a test: an empty home, a working directory, tools, a script for the stub, and the real programs beside ours.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A fresh directory with `home`, `work` and `tools` in it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// What a command line came to.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit status.
    pub(crate) status: i32,
    /// The lines of standard output.
    pub(crate) lines: Vec<Value>,
    /// Standard output as it is.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Place {
    /// Makes one. `cp-llm` and `cp-exec` must have been built beside the program.
    pub(crate) fn new() -> Self {
        for part in ["cp-llm", "cp-exec", "cp-log"] {
            let built = Path::new(env!("CARGO_BIN_EXE_cp-toolloop")).with_file_name(part);
            assert!(built.is_file(), "{part} is not built: run scripts/test, or cargo build --workspace");
        }
        let place = Self { directory: tempfile::tempdir().unwrap() };
        for directory in ["work", "tools"] {
            std::fs::create_dir(place.path(directory)).unwrap();
        }
        place
    }

    /// A path in it.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// Makes a tool of a shell script; `more` are members of its description beside its name.
    pub(crate) fn tool(&self, name: &str, more: &str, script: &str) {
        let description = format!(r#"{{"name":"{name}","description":"a tool of a test"{more}}}"#);
        let text = format!("#!/bin/sh\nif [ \"$1\" = --describe ]; then echo '{description}'; exit; fi\n{script}\n");
        self.executable(&format!("tools/{name}"), &text);
    }

    /// Writes an executable.
    pub(crate) fn executable(&self, below: &str, text: &str) {
        let path = self.path(below);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes what the stub plays.
    pub(crate) fn script(&self, lines: &[&str]) {
        std::fs::write(self.path("script"), lines.join("\n")).unwrap();
    }

    /// The program, in the working directory, with nothing of the caller's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cp-toolloop"));
        command.args(arguments).current_dir(self.path("work")).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.path("work"));
        command.env("CP_HOME", self.path("home")).env("CP_BACKEND", "stub");
        if self.path("script").exists() {
            command.env("CP_STUB_SCRIPT", self.path("script"));
        }
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from(self.command(arguments).output().unwrap())
    }

    /// Runs the program with the tools of this place.
    pub(crate) fn with_tools(&self, arguments: &[&str]) -> Ran {
        let tools = self.path("tools").display().to_string();
        self.run(&[&["--tools", &tools], arguments].concat())
    }

    /// Waits until a tool has written into a file of the working directory.
    pub(crate) fn until_written(&self, name: &str) {
        let began = std::time::Instant::now();
        while self.written(name).is_empty() {
            assert!(began.elapsed().as_secs() < 30, "nobody writes {name}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// What a tool wrote into a file of the working directory.
    pub(crate) fn written(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("work").join(name)).unwrap_or_default()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let stdout = String::from_utf8(output.stdout).unwrap();
        Self {
            status: output.status.code().unwrap_or(-1),
            lines: stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            stdout,
        }
    }
}

impl Ran {
    /// The data of the records of a kind.
    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["type"] == kind).map(|line| &line["data"]).collect()
    }

    /// The contents of the tool results.
    pub(crate) fn results(&self) -> Vec<&str> {
        self.of("tool_result").iter().map(|data| data["content"].as_str().unwrap()).collect()
    }

    /// The closing line.
    pub(crate) fn closing(&self) -> &Value {
        self.lines.last().unwrap_or(&Value::Null)
    }

    /// The error of the closing line.
    pub(crate) fn error(&self) -> &Value {
        &self.closing()["error"]
    }

    /// The details of that error, as text.
    pub(crate) fn detail(&self, name: &str) -> String {
        self.error()["details"][name].as_str().unwrap_or_default().to_owned()
    }

    /// The words after the program's name of a command line that an answer gave.
    pub(crate) fn words_of(line: &str) -> Vec<&str> {
        line.split(' ').skip(1).collect()
    }
}
