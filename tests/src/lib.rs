//! Support for the end-to-end tests: a fresh directory, an empty home, the real programs on `PATH`, and nothing else of the caller's environment.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failure to set up is a failed test")]

pub mod transcript;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Every program of the workspace.
pub const PROGRAMS: [&str; 7] = ["cp-log", "cp-session", "cp-compose", "cp-llm", "cp-exec", "cp-toolloop", "cp-shell"];

/// The directory of the programs: beside the test's own executable, where `cargo build --workspace` puts them.
pub fn programs() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let directory = test
        .ancestors()
        .find(|place| place.join("cp-log").is_file())
        .expect("the programs are built: run scripts/test");
    directory.to_owned()
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}

/// A fresh working directory, and beside it an empty home: policy refuses to work in a directory that contains the home.
pub struct Place {
    directory: tempfile::TempDir,
    work: PathBuf,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// Makes one.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let work = directory.path().join("work");
        std::fs::create_dir(&work).expect("a working directory");
        Self { directory, work }
    }

    /// The working directory of everything that runs here.
    pub fn path(&self) -> &Path {
        &self.work
    }

    /// The home, which nothing has made yet.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// A command with the pinned environment and no standard input.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let scripts = repository().join("scripts");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:{}", programs().display(), scripts.display());
        command.current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", path).env("HOME", self.path()).env("CP_HOME", self.home());
        command.env("LANG", "C.UTF-8").env("TZ", "UTC");
        command
    }

    /// Runs a shell script to its end.
    pub fn sh(&self, script: &str) -> Ran {
        let output = self.command("sh").args(["-c", script]).output().expect("sh runs");
        Ran::from(output)
    }
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    /// The exit status; 128 and the signal if one ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        Self {
            status: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// The lines of standard output as JSON.
    pub fn json(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("not JSON ({e}): {line}\nstderr: {}", self.stderr))
        };
        self.stdout.lines().map(parse).collect()
    }

    /// The last line of standard output as JSON.
    pub fn closing(&self) -> Value {
        self.json().pop().unwrap_or_else(|| panic!("no output; stderr: {}", self.stderr))
    }
}

/// Checks that the output keeps the contract: every line an envelope with exact keys, `meta` on the last line and only there, codes and exit
/// as the table says. The table is read from the checked-in files, not from the code.
pub fn check_contract(ran: &Ran) {
    let lines = ran.json();
    assert!(!lines.is_empty(), "no output; stderr: {}", ran.stderr);
    let last = lines.len() - 1;
    for (at, line) in lines.iter().enumerate() {
        check_envelope(line, at == last);
    }
    let closing = &lines[last];
    assert_eq!(
        closing["ok"] == Value::Bool(true),
        ran.status == 0,
        "closing ok and exit {} disagree: {closing}",
        ran.status
    );
    if let Some(code) = closing["error"]["code"].as_str() {
        assert_eq!(i64::from(ran.status), table_row(code)["exit"].as_i64().expect("an exit"), "exit of {code}");
    }
}

fn check_envelope(line: &Value, is_last: bool) {
    let object = line.as_object().unwrap_or_else(|| panic!("not an envelope: {line}"));
    let keys: Vec<&str> = object.keys().map(String::as_str).collect();
    let ok = line["ok"].as_bool().expect("ok is a boolean");
    let body = if ok { "data" } else { "error" };
    let expected: &[&[&str]] = if is_last {
        &[&["ok", "schema_version", body, "meta"], &["ok", "schema_version", "type", body, "meta"]]
    } else {
        &[&["ok", "schema_version", "type", body]]
    };
    assert!(expected.contains(&keys.as_slice()), "keys {keys:?} (last line: {is_last}): {line}");
    assert_eq!(line["schema_version"], "1.0");
    if !ok {
        let error = line["error"].as_object().expect("error is an object");
        let names: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(names, ["code", "message", "details", "retryable"], "{line}");
        let row = table_row(error["code"].as_str().expect("a code"));
        assert_eq!(error["retryable"], row["retryable"], "{line}");
        assert!(error["details"].is_object(), "{line}");
    }
    if let Some(meta) = line.get("meta") {
        let meta = meta.as_object().expect("meta is an object");
        assert!(meta["duration_ms"].is_u64(), "{line}");
        assert!(meta.keys().all(|key| key == "duration_ms" || key == "notices"), "{line}");
    }
}

/// The row of a code in the checked-in contract.
pub fn table_row(code: &str) -> Value {
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(repository().join("common").join(name)).expect("the contract file");
        serde_json::from_str(&text).expect("the contract file is JSON")
    };
    let mut row = read("contract.json")["error_codes"]["core"][code].clone();
    if row.is_null() {
        row = read("contract-ext.json")["error_codes"]["ext"][code].clone();
    }
    assert!(row.is_object(), "the code {code} is in no contract file");
    row
}
