//! A home with a policy, a project and cp-exec in it: as the user the tests run as, and, where that is root, as an
//! ordinary user too.

use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cp_testkit::{Place, Program};
use serde_json::Value;

/// The user who runs cp-exec.
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
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("cp-exec-tests-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.join("cp-exec");
        fs::copy(cp_testkit::program("cp-exec"), &path).unwrap();
        path
    })
}

pub(crate) struct Exec {
    place: Place,
    pub(crate) who: Who,
}

impl Deref for Exec {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

/// What `python3 -c` runs for a script of the project, which lies in no execute path.
pub(crate) const SCRIPT: &str = "import sys; sys.argv.pop(0); exec(open(sys.argv[0]).read())";

/// A policy that allows what most tests run.
pub(crate) const POLICY: &str = r#"
[exec]
allowed_commands = ["sh", "true", "false", "sleep", "python3", "echo", "env", "cat", "head", "id", "git", "perl", "ls", "mkdir", "rmdir", "rm",
  "mv", "cp", "ln", "touch", "grep", "sed", "seq", "wc", "dd", "chmod", "test", "dirname", "printf", "stat", "readlink", "tr", "cut",
  "timeout", "setsid", "nohup", "kill", "mkfifo", "truncate", "tail", "find", "sort", "od", "make"]
restricted_commands = ["shred"]
intent = "off"
"#;

impl Exec {
    pub(crate) fn new(who: Who) -> Self {
        Self::with_policy(who, POLICY)
    }

    pub(crate) fn with_policy(who: Who, policy: &str) -> Self {
        let exec = Self { place: Place::new(), who };
        fs::set_permissions(&exec.root, fs::Permissions::from_mode(0o755)).unwrap();
        exec.policy(policy);
        exec.own_all();
        exec
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.home.join("ledger/cp-exec.jsonl")
    }

    /// Writes a file of the project, owned by the user who runs cp-exec.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work.write(name, text);
        self.own_all();
        path
    }

    pub(crate) fn executable(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work.executable(name, text);
        self.own_all();
        path
    }

    /// Gives everything to the user who runs.
    pub(crate) fn own_all(&self) {
        if self.who == Who::Ordinary {
            own(&self.root);
        }
    }

    /// The program, which gets its home by an option: a command in the sandbox must not learn it from a variable.
    pub(crate) fn command(&self, arguments: &[&str]) -> Program {
        let command = self.program(program()).without_env("CP_HOME").arg("--home").arg(&self.home).args(arguments);
        self.as_user(command)
    }

    /// A shell script outside of the sandbox, run by the user who runs cp-exec.
    pub(crate) fn outside(&self, script: &str) -> Program {
        self.as_user(self.program("sh").args(["-c", script]))
    }

    fn as_user(&self, command: Program) -> Program {
        match self.who {
            Who::Me => command,
            Who::Ordinary => command.with(|command| _ = command.uid(ORDINARY).gid(ORDINARY)),
        }
    }

    /// The last line of the answer, and the exit status.
    #[track_caller]
    pub(crate) fn ask(&self, arguments: &[&str]) -> (Value, i32) {
        let ran = self.command(arguments).run();
        (ran.records().pop().unwrap_or_else(|| panic!("no answer: {ran:?}")), ran.status)
    }

    /// Runs a shell script inside, and gives what it did.
    #[track_caller]
    pub(crate) fn inside(&self, script: &str) -> Value {
        let (answer, _) = self.ask(&["--", "sh", "-c", script]);
        let result = if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] };
        assert!(result["argv"].is_array(), "it did not run: {answer}");
        result.clone()
    }

    /// Sends lines to standard input, and gives all the answers.
    #[track_caller]
    pub(crate) fn answers(&self, arguments: &[&str], input: &str) -> (Vec<Value>, i32) {
        let ran = self.command(arguments).stdin(input).run();
        (ran.records(), ran.status)
    }

    /// The entries of the ledger with this event.
    pub(crate) fn entries(&self, event: &str) -> Vec<Value> {
        let entries = self.home.records(self.ledger()).into_iter();
        entries.filter(|entry| entry["event"] == event).collect()
    }
}

/// Gives a tree to the ordinary user. A run beside it may remove files meanwhile.
fn own(path: &Path) {
    match lchown(path, Some(ORDINARY), Some(ORDINARY)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        result => result.unwrap(),
    }
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).into_iter().flatten() {
            own(&entry.unwrap().path());
        }
    }
}

/// True if a process with this word in its command line exists on this machine.
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
