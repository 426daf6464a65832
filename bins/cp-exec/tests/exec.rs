//! A home with a policy, a project and cp-exec in it: as the user the tests run as, and, where that is root, as an
//! ordinary user too.

use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cp_testkit::{Place, Program, is_sampled, until};
use serde_json::{Value, json};

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

impl Who {
    /// The cases of many that this user tries: users take turns, or try all where `CP_LONG` is set.
    pub(crate) fn turns<T>(self, cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        let users = everyone().len();
        (0..).zip(cases).filter(move |(case, _)| is_sampled(*case, self as usize, users)).map(|(_, case)| case)
    }
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
pub(crate) const POLICY: &str = include_str!("data/policies/everyday.toml");

/// The policy with more settings of `[exec]`.
pub(crate) fn policy_with(more: &str) -> String {
    POLICY.replace("intent =", &format!("{more}\nintent ="))
}

/// The rows of a table, whose fields are separated by tabs. A line that begins with `#` is a comment.
pub(crate) fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> + Clone {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let mut fields = line.splitn(N, '\t');
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    })
}

/// The members of a result, which are the details of a failure.
pub(crate) fn details(answer: &Value) -> &Value {
    if answer["ok"] == true { &answer["data"] } else { &answer["error"]["details"] }
}

impl Exec {
    pub(crate) fn new(who: Who) -> Self {
        Self::with_policy(who, POLICY)
    }

    pub(crate) fn with_policy(who: Who, policy: &str) -> Self {
        let exec = Self { place: Place::new(), who };
        fs::set_permissions(&exec.root, fs::Permissions::from_mode(0o755)).unwrap();
        exec.policy(policy);
        exec
    }

    pub(crate) fn without_policy() -> Self {
        let exec = Self::new(Who::Me);
        fs::remove_file(exec.home.join("config/policy.toml")).unwrap();
        exec
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.home.join("ledger/cp-exec.jsonl")
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        self.work.write(name, text)
    }

    pub(crate) fn executable(&self, name: &str, text: &str) -> PathBuf {
        self.work.executable(name, text)
    }

    /// Writes the files of a bundle to the project: each begins after a line `== NAME`.
    pub(crate) fn unpack(&self, bundle: &str) {
        for file in format!("\n{bundle}").split("\n== ").skip(1) {
            let (name, text) = file.split_once('\n').unwrap();
            self.write(name, &format!("{}\n", text.trim_end_matches('\n')));
        }
    }

    /// Waits until a file of the project is there.
    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str) {
        until(name, || self.work.join(name).exists());
    }

    /// Gives everything to the user who runs, as before each program of that user.
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

    /// A program, run by the user who runs cp-exec.
    pub(crate) fn as_user(&self, command: Program) -> Program {
        self.own_all();
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

    /// Runs a shell script as one command.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> (Value, i32) {
        self.ask(&["--", "sh", "-c", script])
    }

    /// The token of a dry run.
    #[track_caller]
    pub(crate) fn token(&self, words: &[&str]) -> String {
        let (shown, _) = self.ask(&[words, &["--dry-run"]].concat());
        shown["data"]["confirm_token"].as_str().unwrap_or_else(|| panic!("{words:?}: no token: {shown}")).to_owned()
    }

    /// What a verb answers with the token of its dry run.
    #[track_caller]
    pub(crate) fn confirmed(&self, words: &[&str]) -> Value {
        let token = self.token(words);
        let (answer, status) = self.ask(&[words, &["--confirm", &token]].concat());
        assert_eq!(status, 0, "{words:?}: {answer}");
        answer["data"].clone()
    }

    /// Answers the question of `cp-exec approve ID` at a terminal.
    pub(crate) fn approve(&self, id: &str, typed: &str) -> String {
        let mut terminal = self.command(&["approve", id]).terminal(80);
        terminal.wait_for("Allow it? y = yes, n = no: ");
        terminal.send(&format!("{typed}\r"));
        terminal.end();
        terminal.text()
    }

    /// The answer to a file operation.
    #[track_caller]
    pub(crate) fn file(&self, options: &[&str], operation: &str, arguments: &Value) -> Value {
        let request = json!({"tool": "filesystem", "operation": operation, "arguments": arguments}).to_string();
        self.answers(options, &request).0.remove(0)
    }

    /// The answer to the tool call `c1`.
    #[track_caller]
    pub(crate) fn call(&self, options: &[&str], name: &str, input: &Value) -> Value {
        let data = json!({"id": "c1", "name": name, "input": input});
        let call = json!({"ok": true, "schema_version": "1.0", "type": "tool_call", "data": data}).to_string();
        self.answers(options, &call).0.remove(0)
    }

    /// Runs a shell script inside, and gives what it did.
    #[track_caller]
    pub(crate) fn inside(&self, script: &str) -> Value {
        let (answer, _) = self.sh(script);
        let result = details(&answer);
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
    let Ok(meta) = path.symlink_metadata() else { return };
    if meta.uid() != ORDINARY {
        match lchown(path, Some(ORDINARY), Some(ORDINARY)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            result => result.unwrap(),
        }
    }
    if meta.is_dir() {
        fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| own(&entry.path()));
    }
}

/// True if this holds soon.
pub(crate) fn soon(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
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
