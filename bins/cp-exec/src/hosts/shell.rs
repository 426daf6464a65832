//! The program that Claude Code puts before each command line of tools, skills, hooks and servers: a script that runs
//! `cp-exec hook shell`. It is one file without arguments, because Claude Code starts servers with it directly.

use std::path::{Path, PathBuf};

use cp_common::wire::quoted;

use super::{Command, Host};

/// The environment variable with the program.
pub(crate) const SHELL_PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";

/// The file of the program below a home. Commands inside of an agent use it as well, so it is not in a hidden
/// directory.
const FILE: &str = "bin/claude-shell";

/// The file of the program in a home.
pub(crate) fn file(home: &Path) -> PathBuf {
    home.join(FILE)
}

/// True for the program of any home.
pub(super) fn is_ours(value: &str) -> bool {
    Path::new(value).ends_with(FILE)
}

/// The text of the program.
pub(crate) fn text(command: &Command<'_>) -> String {
    let name = command.host.name();
    let words = [command.program, "--home", command.home, "--format", "raw", "hook", "shell", name, "--"].map(quoted);
    format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "))
}

/// True if the program is in its file, unchanged.
pub(crate) fn is_written(command: &Command<'_>) -> bool {
    std::fs::read_to_string(file(Path::new(command.home))).is_ok_and(|now| now == text(command))
}

/// The program that runs the command lines of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostShell {
    /// Our program, which runs them in the sandbox.
    Sandboxed,
    /// Another program, which for example the settings of a project name.
    Foreign,
    /// The shell of the host.
    Default,
}

impl HostShell {
    /// The program that Claude Code uses, according to the environment of this process.
    pub(crate) fn of(command: &Command<'_>) -> Self {
        match std::env::var_os(SHELL_PREFIX).filter(|_| command.host == Host::Claude) {
            Some(prefix) if prefix == file(Path::new(command.home)) && is_written(command) => Self::Sandboxed,
            Some(_) => Self::Foreign,
            None => Self::Default,
        }
    }
}
