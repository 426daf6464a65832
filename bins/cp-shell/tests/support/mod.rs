//! A home, a tree, and the program between them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A fresh place: an empty home, and a tree.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// What the program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The answers.
    pub(crate) fn answers(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The only answer.
    pub(crate) fn answer(&self) -> Value {
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{self:?}");
        answers.remove(0)
    }
}

impl Place {
    /// With the complete tree.
    pub(crate) fn new() -> Self {
        let place = Self::empty();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tree");
        let copied = Command::new("cp").arg("-a").arg(source).arg(place.root()).status().unwrap();
        assert!(copied.success());
        place
    }

    /// Without a tree.
    pub(crate) fn empty() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(place.work()).unwrap();
        place
    }

    /// With a tree that has nothing in it.
    pub(crate) fn bare() -> Self {
        let place = Self::empty();
        std::fs::create_dir(place.root()).unwrap();
        place
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    /// The working directory: policy refuses to work in one that contains the home.
    pub(crate) fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path().join("tree")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The program in this home, with nothing of the caller's environment but the way to programs.
    pub(crate) fn command(&self) -> Command {
        self.command_at(&self.home())
    }

    /// The program in another home.
    pub(crate) fn command_at(&self, home: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cp-shell"));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.path());
        command.current_dir(self.work()).args(["--home".as_ref(), home.as_os_str()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs one of our other programs in this home.
    pub(crate) fn other(&self, program: &str, words: &[&str]) -> Ran {
        let path = Path::new(env!("CARGO_BIN_EXE_cp-shell")).with_file_name(program);
        let mut command = Command::new(path);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").current_dir(self.work());
        command.args(words).args(["--home".as_ref(), self.home().as_os_str()]);
        run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()), "")
    }

    /// Pipes requests into the program, with the tree as its root.
    pub(crate) fn pipe(&self, input: &str) -> Ran {
        run(self.command().arg("--root").arg(self.root()), input)
    }

    /// The answer to one request.
    pub(crate) fn ask(&self, request: &Value) -> Value {
        self.pipe(&request.to_string()).answer()
    }

    /// The result of one request that must be fine.
    pub(crate) fn result(&self, request: &Value) -> Value {
        let answer = self.ask(request);
        assert_eq!(answer["status"], "ok", "{answer}");
        answer["result"].clone()
    }

    /// The code of one request that must fail.
    pub(crate) fn code(&self, request: &Value) -> String {
        let answer = self.ask(request);
        assert_eq!(answer["status"], "error", "{answer}");
        answer["error"]["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, below: &str, text: &str) {
        let path = self.root().join(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The entries of a ledger of the only session.
    pub(crate) fn entries(&self, ledger: &str) -> Vec<Value> {
        let sessions: Vec<_> = std::fs::read_dir(self.home().join("planes/ho1/sessions")).unwrap().collect();
        assert_eq!(sessions.len(), 1, "one session");
        lines(&sessions[0].as_ref().unwrap().path().join(ledger))
    }
}

/// The lines of a file as JSON.
fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command with this input to its end.
pub(crate) fn run(command: &mut Command, input: &str) -> Ran {
    let mut child = command.spawn().unwrap();
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.as_bytes().to_vec();
        std::thread::spawn(move || stdin.write_all(&input));
    }
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Every file below a directory, with its bytes and when it was changed.
pub(crate) fn everything(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
        } else {
            let modified = path.metadata().unwrap().modified().unwrap();
            found.insert(path.clone(), (std::fs::read(&path).unwrap(), modified));
        }
    }
    found
}
