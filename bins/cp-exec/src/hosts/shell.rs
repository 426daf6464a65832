//! The program that Claude Code puts before each command line of tools, skills, hooks and servers: a script that runs
//! `cp-exec hook shell`. It is one file without arguments, because Claude Code starts servers with it directly.

use std::path::{Path, PathBuf};

use cp_common::wire::quoted;
use cp_common::{Code, Error, Result};
use cp_hosts::Text;
use serde_json::{Value, json};

use super::{Command, HookHost};

/// The environment variable with the program.
pub(crate) const SHELL_PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";

/// The file of the program below a home. Commands inside of an agent use it as well, so it is not in a hidden
/// directory.
const FILE: &str = "bin/claude-shell";

/// The file of the program in a home.
pub(crate) fn file(home: &Path) -> PathBuf {
    home.join(FILE)
}

/// The variables for the settings of the host; `None` if it has no such variable.
pub(super) fn variables(command: &Command<'_>) -> Option<Value> {
    (command.host == HookHost::Claude).then(|| json!({ SHELL_PREFIX: file(Path::new(command.home)) }))
}

/// The value of the variable in the settings of the host, and the path of its member.
pub(super) fn setting(text: &Text) -> Option<(Vec<usize>, String)> {
    let env = text.member(&[], "env")?;
    let member = text.member(&[env], SHELL_PREFIX)?;
    let value = serde_json::from_str(text.children(&[env])[member]).unwrap_or_default();
    Some((vec![env, member], value))
}

/// True for the program of any home.
pub(super) fn is_ours(value: &str) -> bool {
    Path::new(value).ends_with(FILE)
}

/// Adds the variable to settings that do not have it.
pub(super) fn add(text: &mut Text, variables: &Value) -> Result<()> {
    if let Some((_, value)) = setting(text) {
        return Err(Error::new(Code::Conflict, format!("`env.{SHELL_PREFIX}` is already `{value}`"))
            .hint("remove it: cp-exec would not see the lines that this program runs"));
    }
    match text.member(&[], "env") {
        Some(env) => text.append(&[env], Some(SHELL_PREFIX), &variables[SHELL_PREFIX]),
        None => text.append(&[], Some("env"), variables),
    }
    Ok(())
}

/// The text of the program.
pub(crate) fn text(command: &Command<'_>) -> String {
    let words: Vec<String> =
        [command.program, "--home", command.home, "--format", "raw", "hook", "shell", command.host.name(), "--"]
            .into_iter()
            .map(quoted)
            .collect();
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
        match std::env::var_os(SHELL_PREFIX).filter(|_| command.host == HookHost::Claude) {
            Some(prefix) if prefix == file(Path::new(command.home)) && is_written(command) => Self::Sandboxed,
            Some(_) => Self::Foreign,
            None => Self::Default,
        }
    }
}
