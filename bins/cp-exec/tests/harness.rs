//! A home, a project and a policy in a directory of their own, and cp-exec in it: as the user the tests run as, and,
//! where that is root, as an ordinary user too.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// Who runs cp-exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The user the tests run as.
    Me,
    /// An ordinary user; only root can be one.
    Ordinary,
}

/// Everyone the tests can be.
pub(crate) fn everyone() -> Vec<Who> {
    if rustix::process::geteuid().is_root() { vec![Who::Me, Who::Ordinary] } else { vec![Who::Me] }
}

const ORDINARY: u32 = 1000;

/// A copy of the program that every user can execute.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("cp-exec-tests-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.join("cp-exec");
        fs::copy(env!("CARGO_BIN_EXE_cp-exec"), &path).unwrap();
        path
    })
}

pub(crate) struct House {
    directory: tempfile::TempDir,
    pub(crate) who: Who,
}

/// A policy that allows what most tests run.
pub(crate) const POLICY: &str = r#"
[exec]
allowed_commands = ["sh", "true", "false", "sleep", "python3", "echo", "env", "cat", "head", "id", "git", "perl"]
restricted_commands = ["rm"]
argument_rules = "off"
intent = "off"
"#;

impl House {
    pub(crate) fn new(who: Who) -> Self {
        Self::with_policy(who, POLICY)
    }

    pub(crate) fn with_policy(who: Who, policy: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("house").tempdir().unwrap();
        let house = Self { directory, who };
        fs::set_permissions(house.root(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["home", "home/config", "project"] {
            fs::create_dir_all(house.root().join(name)).unwrap();
        }
        fs::write(house.home().join("config/policy.toml"), policy).unwrap();
        house.own_all();
        house
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.home().join("ledger/cp-exec.jsonl")
    }

    /// Writes a file of the project, owned by whoever runs.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.project().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        self.own_all();
        path
    }

    pub(crate) fn executable(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Gives everything to the user who runs.
    pub(crate) fn own_all(&self) {
        if self.who == Who::Ordinary {
            own(self.root());
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("--home").arg(self.home()).args(args).current_dir(self.project()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.root());
        command.stdin(Stdio::null());
        if self.who == Who::Ordinary {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The last line of the answer, and the exit status.
    pub(crate) fn run(&self, args: &[&str]) -> (Value, i32) {
        let output = self.output(args);
        let lines = lines(&output);
        let last = lines.last().cloned().unwrap_or_else(|| panic!("no answer: {output:?}"));
        (last, output.status.code().unwrap())
    }

    /// Runs a shell script inside, and gives what it did.
    pub(crate) fn sh(&self, script: &str) -> Value {
        let (answer, _) = self.run(&["--", "sh", "-c", script]);
        let result = if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] };
        assert!(result["argv"].is_array(), "it did not run: {answer}");
        result.clone()
    }

    /// Sends lines to standard input, and gives all the answers.
    pub(crate) fn feed(&self, args: &[&str], input: &str) -> (Vec<Value>, i32) {
        let mut child =
            self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (lines(&output), output.status.code().unwrap())
    }

    /// The entries of the ledger with this event.
    pub(crate) fn entries(&self, event: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.ledger()).unwrap_or_default();
        let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter(|entry| entry["event"] == event).collect()
    }
}

pub(crate) fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn own(path: &Path) {
    chown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_symlink() {
                own(&path);
            }
        }
    }
}

/// Whether a process with this word in its command line is alive anywhere on this machine.
pub(crate) fn alive(word: &str) -> bool {
    let mut found = false;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        found |= String::from_utf8_lossy(&line).contains(word);
    }
    found
}
