//! The command that a host runs instead: this program, with the original as one word that no shell looks into.

use std::path::{Path, PathBuf};

use cp_common::wire::quoted;

/// A command line of a host's shell tool.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub command: String,
    pub cwd: PathBuf,
    /// The host's own limit, in seconds.
    pub timeout: Option<f64>,
}

/// What every rewritten command of an event has in common.
#[derive(Debug)]
pub(crate) struct Rewriting<'a> {
    /// This program.
    pub program: &'a Path,
    /// The options that hand the context on.
    pub context: &'a [String],
    /// Who asks, as one word of `--hosted`.
    pub hosted: &'a str,
}

impl Rewriting<'_> {
    /// The command line for the host's shell.
    pub(crate) fn of(&self, line: &Line, token: Option<&str>) -> String {
        let program = self.program.display().to_string();
        let cwd = line.cwd.display().to_string();
        let timeout = line.timeout.map(|limit| limit.to_string());
        let mut words = vec![program.as_str()];
        words.extend(self.context.iter().map(String::as_str));
        words.extend(["--hosted", self.hosted, "--format", "raw", "--cwd", &cwd]);
        words.extend(timeout.iter().flat_map(|limit| ["--timeout", limit.as_str()]));
        words.extend(token.iter().flat_map(|token| ["--confirm", *token]));
        let words: Vec<String> = words.into_iter().map(quoted).collect();
        format!("{} -c '{}'", words.join(" "), line.command.replace('\'', r"'\''"))
    }
}

/// The original of a command line that looks like one that was rewritten. Whether it is exactly that, its maker says.
pub(crate) fn candidate(line: &Line) -> Option<Line> {
    let (_, word) = line.command.split_once(" -c '")?;
    let command = word.strip_suffix('\'')?.replace(r"'\''", "'");
    Some(Line { command, ..line.clone() })
}
