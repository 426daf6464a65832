//! The command that a host runs instead of the original: this program, with the original as one quoted word.

use std::path::{Path, PathBuf};

use cp_common::wire::quoted;

/// A command line of a host's shell tool.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub command: String,
    pub cwd: PathBuf,
    /// The time limit of the host, in seconds.
    pub timeout: Option<f64>,
}

/// The common parts of all rewritten commands of an event.
#[derive(Debug)]
pub(crate) struct Rewriter<'a> {
    /// The path of this program.
    pub program: &'a Path,
    /// The options that pass the context on.
    pub context: &'a [String],
    /// The value of `--hosted`.
    pub hosted: &'a str,
}

impl Rewriter<'_> {
    /// The rewritten command line for the host's shell.
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

/// The original of a command line that may be a rewritten one. The caller verifies it by rewriting it again.
pub(crate) fn original_of(line: &Line) -> Option<Line> {
    let (_, word) = line.command.split_once(" -c '")?;
    let command = word.strip_suffix('\'')?.replace(r"'\''", "'");
    Some(Line { command, ..line.clone() })
}
