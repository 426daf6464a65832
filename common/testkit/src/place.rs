//! A place for a test: private directories, and the environment of all programs that run there.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::directory::Directory;
use crate::events::first_fault;
use crate::outcome::Outcome;
use crate::program::{PROGRAMS, Program, SYSTEM_PATH, program};
use crate::spawn::spawn;

/// A fresh directory that is removed with the test.
#[derive(Debug)]
pub struct Place {
    /// The whole directory.
    pub root: Directory,
    /// The working directory. It is outside of the home, because policy refuses a working directory that contains the
    /// home.
    pub work: Directory,
    /// The directory in `CP_HOME`, which does not exist yet.
    pub home: Directory,
    /// The directory in `HOME`, which is empty.
    pub user: Directory,
    subject: Option<&'static str>,
    end: End,
}

/// What happens at the end: the directory is removed, after its ledgers were compared with the table of events.
#[derive(Debug)]
struct End {
    directory: tempfile::TempDir,
    is_forged: AtomicBool,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_forged.load(Relaxed) || std::thread::panicking() {
            return;
        }
        if let Some(fault) = first_fault(self.directory.path()) {
            panic!("{fault}\nEvents and members belong into common/ledger/events.json.");
        }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// Makes a place for several programs.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("place").tempdir().expect("a temporary directory");
        let root = Directory::new(directory.path().canonicalize().expect("the directory is there"));
        let (work, user) = (root.directory("work"), root.directory("user"));
        Self {
            home: Directory::new(root.join("home")),
            root,
            work,
            user,
            subject: None,
            end: End { directory, is_forged: AtomicBool::new(false) },
        }
    }

    /// Makes a place for one program, which [`Place::run`] and [`Place::feed`] run.
    pub fn of(program: &'static str) -> Self {
        Self { subject: Some(program), ..Self::new() }
    }

    /// Says that the test itself writes lines here that no program writes, so that the table of events does not hold.
    pub fn forged(&self) {
        self.end.is_forged.store(true, Relaxed);
    }

    /// Makes a command line: the name of a program of the workspace, of one on the system's path, or a path. An
    /// executable with that name in `bin` of this place has precedence ([`Place::install`], [`Fake`](crate::Fake)).
    #[track_caller]
    pub fn program(&self, name: impl AsRef<Path>) -> Program {
        let name = name.as_ref();
        let installed = self.root.join("bin").join(name);
        let is_ours = name.to_str().is_some_and(|name| PROGRAMS.contains(&name));
        let path = match () {
            () if installed.is_file() => installed,
            () if is_ours => program(name),
            () => name.to_owned(),
        };
        let mut command = Command::new(path);
        command.env_clear().current_dir(&self.work);
        command.env("PATH", SYSTEM_PATH).env("HOME", &self.user).env("CP_HOME", &self.home);
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        Program::new(command)
    }

    /// Makes a command line of this place's program.
    #[track_caller]
    pub fn subject(&self) -> Program {
        self.program(self.subject.expect("made by Place::of"))
    }

    /// Runs this place's program.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        self.subject().args(arguments).run()
    }

    /// Runs this place's program with standard input.
    #[track_caller]
    pub fn feed(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> Outcome {
        self.subject().args(arguments).stdin(input).run()
    }

    /// Runs a script of `sh` with all programs of the workspace on the path.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Outcome {
        self.shell("sh", script).run()
    }

    /// Makes a script of `shell` with all programs of the workspace and `scripts/` on the path.
    #[track_caller]
    pub fn shell(&self, shell: &str, script: &str) -> Program {
        self.program(shell).args(["-c", script]).with_programs()
    }

    /// Puts a program of the workspace into `bin` of this place, so that it finds fakes beside itself instead of the
    /// real programs.
    #[track_caller]
    pub fn install(&self, name: &str) {
        let bin = self.root.directory("bin");
        // A hard link if possible, because some programs are large. Otherwise another process copies it, for the reason
        // in `Directory::executable`.
        if !bin.join(name).exists() && std::fs::hard_link(program(name), bin.join(name)).is_err() {
            let copied = spawn(Command::new("/bin/cp").arg(program(name)).arg(&bin)).and_then(|mut cp| cp.wait());
            assert!(copied.expect("cp starts").success(), "{name} cannot be copied to {}", bin.display());
        }
    }

    /// Writes the policy of the home.
    #[track_caller]
    pub fn policy(&self, text: &str) {
        self.home.write("config/policy.toml", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_has_only_pinned_variables() {
        let ran = Place::new().program("env").run();
        let mut names: Vec<&str> = ran.stdout.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["CP_HOME", "HOME", "LC_ALL", "PATH", "TZ"]);
    }

    #[test]
    fn working_directory_is_outside_home() {
        let place = Place::new();
        let ran = place.program("pwd").run();
        assert_eq!(Path::new(ran.stdout.trim()), &*place.work);
        assert!(!place.home.exists() && !place.home.starts_with(&place.work));
    }

    #[test]
    fn files_are_read_as_written() {
        let place = Place::new();
        place.work.write("a/b.jsonl", "{\"n\":1}\n\n{\"n\":2}\n");
        assert_eq!(place.work.records("a/b.jsonl")[1]["n"], 2);
        assert_eq!(place.work.read("a/b.jsonl").lines().count(), 3);
        assert!(place.work.records("none").is_empty());
        assert_eq!(place.root.names(), ["user", "work"]);
    }
}
