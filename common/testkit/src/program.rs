//! A command line: a program with its arguments, input and environment.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use crate::background::Background;
use crate::outcome::Outcome;
use crate::spawn::spawn;
use crate::terminal::Terminal;
use crate::wait::LIMIT;

/// The search path of system programs. The caller's `PATH` is not used, because it differs by machine.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The programs of the workspace.
pub const PROGRAMS: [&str; 8] =
    ["cp-log", "cp-session", "cp-compose", "cp-llm", "cp-exec", "cp-toolloop", "cp-shell", "cp-mcp"];

/// Returns the path of a program of the workspace, as built for this test.
#[track_caller]
pub fn program(name: impl AsRef<Path>) -> PathBuf {
    let path = PLACE_OF_PROGRAMS.join(name);
    assert!(path.is_file(), "{} is not built: run cargo build --workspace --bins", path.display());
    path
}

/// The directory of the programs. Cargo gives a test only the paths of its own package's programs, but builds all
/// programs into the same directory.
static PLACE_OF_PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().expect("the test has a path");
    let directory = test.parent().expect("the test lies in a directory");
    let directory = if directory.ends_with("deps") { directory.with_file_name("") } else { directory.to_owned() };
    // `cargo test -p` builds only the programs of one package.
    if PROGRAMS.into_iter().chain(["cp-ask"]).any(|name| !directory.join(name).is_file()) {
        build(&directory);
    }
    directory
});

/// Builds all programs into `directory`, which cargo names after the profile.
fn build(directory: &Path) {
    // Not by `eprintln!`, which the test runner keeps to itself, because this takes minutes.
    let _ = writeln!(io::stderr(), "building the programs that the tests run: cargo build --workspace --bins");
    let profile = directory.file_name().filter(|name| *name != "debug").unwrap_or("dev".as_ref());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--workspace", "--bins", "--quiet", "--profile"]).arg(profile);
    cargo.arg("--target-dir").arg(directory.parent().expect("it lies in the target directory"));
    // If this fails, a program is still missing, which the test reports.
    let _ = cargo.current_dir(repository()).status();
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies in common/").to_owned()
}

/// A command line that has not been run yet.
#[derive(Debug)]
#[must_use = "a command line does nothing until it is run or started"]
pub struct Program {
    command: Command,
    input: Option<Vec<u8>>,
    has_streams: [bool; 2],
    limit: Duration,
}

impl Program {
    pub(crate) fn new(command: Command) -> Self {
        Self { command, input: None, has_streams: [false; 2], limit: LIMIT }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Pins the clock of the programs of the workspace.
    pub fn now(self, time: &str) -> Self {
        self.env("CP_NOW", time)
    }

    /// Puts the programs of the workspace first on the path, and `scripts/` last.
    pub fn with_programs(self) -> Self {
        let path = format!("{}:{SYSTEM_PATH}:{}", PLACE_OF_PROGRAMS.display(), repository().join("scripts").display());
        self.env("PATH", path)
    }

    /// Appends a directory to the path.
    pub fn also_on_path(self, directory: impl AsRef<Path>) -> Self {
        let path =
            self.command.get_envs().find_map(|(name, value)| value.filter(|_| name == "PATH")).unwrap_or_default();
        let path = format!("{}:{}", path.to_string_lossy(), directory.as_ref().display());
        self.env("PATH", path)
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Sets the standard input; without it, the input is empty.
    pub fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.input = Some(bytes.as_ref().to_owned());
        self
    }

    /// Connects standard input to a file or a pipe.
    pub fn stdin_from(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self.has_streams[0] = true;
        self
    }

    /// Connects standard output to a file or a pipe; the outcome then contains no output.
    pub fn stdout_to(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self.has_streams[1] = true;
        self
    }

    /// Sets the time limit, which is two minutes by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Changes the command in a way that only one test needs, such as its user.
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Makes this command line the last arguments of another program, such as `strace` or `unshare`, in the same
    /// environment.
    pub fn under(self, program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.command.get_program()).args(self.command.get_args());
        command.env_clear().envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(directory) = self.command.get_current_dir() {
            command.current_dir(directory);
        }
        assert_eq!(self.has_streams, [false; 2], "streams are connected after `under`");
        Self { command, ..self }
    }

    /// Runs it until it exits.
    #[track_caller]
    pub fn run(mut self) -> Outcome {
        let input = self.input.take();
        if input.is_none() && !self.has_streams[0] {
            self.command.stdin(Stdio::null());
            self.has_streams[0] = true;
        }
        let mut child = self.start();
        if let Some(input) = input {
            // In another thread, because otherwise both sides could wait for each other. A program that stops reading
            // is not a failure.
            let mut stdin = child.take_stdin();
            std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &input));
        }
        child.wait()
    }

    /// Starts it with its standard input open.
    #[track_caller]
    pub fn start(mut self) -> Background {
        if !self.has_streams[0] {
            self.command.stdin(Stdio::piped());
        }
        if !self.has_streams[1] {
            self.command.stdout(Stdio::piped());
        }
        self.command.stderr(Stdio::piped());
        let line = self.line();
        let child = spawn(&mut self.command).unwrap_or_else(|e| panic!("{line}: {e}"));
        let background = Background::new(child, line, self.limit);
        if let Some(input) = self.input { background.with_input(input) } else { background }
    }

    /// Starts it at a terminal with `columns` columns and 24 rows.
    #[track_caller]
    pub fn terminal(self, columns: u16) -> Terminal {
        let line = self.line();
        Terminal::start(self.under("setsid", ["--ctty"]).command, line, columns)
    }

    /// Formats the command line for a shell.
    pub(crate) fn line(&self) -> String {
        let variables = self.command.get_envs().filter(|(name, _)| name.to_string_lossy().starts_with("CP_"));
        let variables =
            variables.map(|(name, value)| format!("{}={}", name.to_string_lossy(), quoted(value.unwrap_or_default())));
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args()).map(quoted);
        variables.chain(words).collect::<Vec<_>>().join(" ")
    }
}

fn quoted(word: &OsStr) -> String {
    let text = OsString::from(word).to_string_lossy().into_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::{PROGRAMS, program};
    use crate::{Fake, Place};

    #[test]
    fn run_passes_more_than_a_pipe_holds() {
        let input = "x".repeat(1 << 20);
        assert_eq!(Place::new().program("cat").stdin(&input).run().stdout, input);
    }

    #[test]
    fn run_accepts_program_that_reads_nothing() {
        assert_eq!(Place::new().program("true").stdin("x".repeat(1 << 20)).run().status, 0);
    }

    /// Run by the test below where no program is built.
    #[test]
    fn finds_programs() {
        if std::env::var_os("TESTKIT_LACKS_PROGRAMS").is_some() {
            assert_eq!(program("cp-log").parent(), program("cp-exec").parent());
        }
    }

    const OTHERS: [&str; 3] = ["--exact", "program::tests::finds_programs", "--nocapture"];

    #[test]
    fn missing_programs_are_built_once_with_profile_of_test() {
        for (directory, profile) in [("debug", "dev"), ("quick", "quick")] {
            let place = Place::new();
            let built = place.root.directory(format!("target/{directory}"));
            let test = built.directory("deps").join("test");
            place.program("cp").arg(std::env::current_exe().unwrap()).arg(&test).run().success();
            let names = PROGRAMS.map(|name| format!("{}/{name}", built.display())).join(" ");
            let cargo = Fake::doing(&place, "cargo", &format!("touch {names}"));
            let ran =
                place.program(test).args(OTHERS).env("CARGO", &cargo.path).env("TESTKIT_LACKS_PROGRAMS", "1").run();
            assert_eq!(ran.status, 0, "{ran:?}");
            assert!(ran.stderr.starts_with("building the programs that the tests run:"), "{ran:?}");
            let expected = format!(
                "build --workspace --bins --quiet --profile {profile} --target-dir {}",
                place.root.join("target").display()
            );
            let calls = cargo.calls();
            assert_eq!((calls.len(), calls[0].arguments.as_str()), (1, expected.as_str()));
        }
    }

    #[test]
    #[should_panic(expected = "did not end within")]
    fn program_over_time_limit_is_killed() {
        Place::new().program("sleep").arg("600").limit(std::time::Duration::from_millis(100)).run();
    }

    #[test]
    fn under_keeps_environment() {
        let place = Place::new();
        let ran =
            place.program("sh").args(["-c", "echo $WORD $PWD $0", "me"]).env("WORD", "hi").under("nice", ["-n", "1"]);
        assert_eq!(ran.run().stdout, format!("hi {} me\n", place.work.display()));
    }
}
