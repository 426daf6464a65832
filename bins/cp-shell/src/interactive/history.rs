//! The history of the person's own shell as context: the newest lines, without secrets, with their line numbers. Files
//! of bash, zsh (with or without times) and fish are read, and never written.

use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use cp_redact::Redactor;
use serde::Serialize;

use crate::interactive::settings;

/// The maximum number of lines in any configuration.
const CAP: usize = 50;
/// The largest file, in bytes.
const LARGEST: u64 = 64 << 20;

/// The lines that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ShellHistory {
    /// True if it is enabled.
    pub(crate) enabled: bool,
    pub(crate) path: Option<String>,
    /// The source of the file name: `shell_history.histfile`, `HISTFILE`, or the name of a shell.
    pub(crate) source: Option<&'static str>,
    /// The lines, oldest first.
    pub(crate) lines: Vec<Line>,
    /// The number of secrets that were removed.
    pub(crate) redactions: u32,
    /// The reason why there are no lines.
    pub(crate) error: Option<String>,
}

/// A line of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// The number of the line, from 1.
    pub(crate) line: u64,
    /// The command, without secrets.
    pub(crate) command: String,
}

/// Reads the history, if enabled. An error is a part of the result and does not end the session.
pub(crate) fn collect(settings: &settings::ShellHistory, wanted: bool, redactor: &Redactor) -> ShellHistory {
    if !(wanted || settings.enabled) {
        return ShellHistory::default();
    }
    let user = std::env::var_os("HOME").map(PathBuf::from);
    let named = std::env::var_os("HISTFILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    let Some((path, source)) = history_file(settings.histfile.as_deref(), named, user.as_deref()) else {
        let error = "no history file was found: set HISTFILE, or histfile in config/shell.toml";
        return ShellHistory { enabled: true, error: Some(error.to_owned()), ..ShellHistory::default() };
    };
    let mut history = ShellHistory {
        enabled: true,
        path: Some(path.display().to_string()),
        source: Some(source),
        ..ShellHistory::default()
    };
    match text_of(&path) {
        Ok(text) => {
            for (line, command) in newest(&text, settings.limit.min(CAP)) {
                let (command, redactions) = redactor.redact_text(&command);
                history.redactions += redactions;
                history.lines.push(Line { line, command });
            }
        }
        Err(e) => history.error = Some(e.to_string()),
    }
    history
}

/// The history file: the configured one, `$HISTFILE`, or an existing file of bash, zsh or fish.
fn history_file(set: Option<&Path>, named: Option<PathBuf>, user: Option<&Path>) -> Option<(PathBuf, &'static str)> {
    if let Some(set) = set {
        let path = match (set.strip_prefix("~"), user) {
            (Ok(below), Some(user)) => user.join(below),
            _ => set.to_owned(),
        };
        return Some((path, "shell_history.histfile"));
    }
    if let Some(named) = named {
        return Some((named, "HISTFILE"));
    }
    let known = [(".bash_history", "bash"), (".zsh_history", "zsh"), (".local/share/fish/fish_history", "fish")];
    known
        .into_iter()
        .map(|(below, shell)| (user.unwrap_or(Path::new("/")).join(below), shell))
        .find(|(path, _)| path.is_file())
}

/// The text of a history file.
fn text_of(path: &Path) -> Result<String> {
    let failed = |e: std::io::Error| Error::io("reading the shell's history", e).in_file(path);
    let found = path.metadata().map_err(failed)?;
    if !found.is_file() || found.len() > LARGEST {
        return Err(Error::validation("the shell's history is not a file of at most 64 MiB").in_file(path));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    Ok(String::from_utf8_lossy(&unmetafied(&bytes)).into_owned())
}

/// Decodes the format of zsh, which writes some bytes as 0x83 and the byte with one bit flipped. Valid UTF-8 text is
/// not changed.
fn unmetafied(bytes: &[u8]) -> Vec<u8> {
    if std::str::from_utf8(bytes).is_ok() {
        return bytes.to_vec();
    }
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match (byte, rest.as_slice().first()) {
            (0x83, Some(next)) if *next >= 0x80 => {
                plain.push(next ^ 0x20);
                rest.next();
            }
            _ => plain.push(*byte),
        }
    }
    plain
}

/// The newest commands with their line numbers, oldest first. The format is detected: fish by `- cmd: `, zsh by `:
/// time:length;`, and bash by `#time` before a command.
fn newest(text: &str, limit: usize) -> Vec<(u64, String)> {
    let mut commands: Vec<(u64, String)> = Vec::new();
    let is_fish = text.lines().any(|line| line.starts_with("- cmd: "));
    let mut is_open = false;
    for (number, line) in (1..).zip(text.lines()) {
        if is_fish {
            if let Some(command) = line.strip_prefix("- cmd: ") {
                commands.push((number, command.replace("\\n", "\n").replace("\\\\", "\\")));
            }
            continue;
        }
        let continued = std::mem::take(&mut is_open);
        if !continued && is_time(line) {
            continue;
        }
        let extended = without_times(line);
        let (line, ends_open) = match line.strip_suffix('\\') {
            // Only zsh ends the lines of a command with a backslash.
            Some(open) if continued || extended.is_some() => (open, true),
            _ => (line, false),
        };
        match (continued, commands.last_mut()) {
            (true, Some((_, command))) => {
                command.push('\n');
                command.push_str(line);
            }
            _ => commands.push((number, without_times(line).unwrap_or(line).to_owned())),
        }
        is_open = ends_open;
    }
    commands.retain(|(_, command)| !command.trim().is_empty());
    commands.split_off(commands.len().saturating_sub(limit))
}

/// `#1700000000`
fn is_time(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|time| time.len() >= 9 && time.bytes().all(|digit| digit.is_ascii_digit()))
}

/// `: 1700000000:0;command`
fn without_times(line: &str) -> Option<&str> {
    let (times, command) = line.strip_prefix(": ")?.split_once(';')?;
    let (time, length) = times.split_once(':')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    (digits(time) && digits(length)).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_of_each_shell_is_read() {
        let zsh = ": 1700000000:0;ls\n: 1700000001:2;for x in a b\\\ndo echo $x\\\ndone\n: 1700000002:0;pwd\n";
        let fish = "- cmd: ls\n  when: 1700000000\n- cmd: echo a\\nb\n  when: 1700000001\n  paths:\n    - a\n";
        for (text, commands) in [
            ("#1700000000\nls -la\n\ngit status\n", &[(2, "ls -la"), (4, "git status")][..]),
            ("echo \\\nnext\n", &[(1, "echo \\"), (2, "next")]),
            (zsh, &[(1, "ls"), (2, "for x in a b\ndo echo $x\ndone"), (5, "pwd")]),
            (fish, &[(1, "ls"), (3, "echo a\nb")]),
        ] {
            let found = newest(text, CAP);
            assert_eq!(found.iter().map(|(line, command)| (*line, command.as_str())).collect::<Vec<_>>(), commands);
        }
    }

    #[test]
    fn shell_history_is_capped_and_redacted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("h");
        let mut text = (0..80).map(|at| format!("echo {at}")).collect::<Vec<_>>().join("\n");
        text.push_str("\nexport API_TOKEN=ghp_16C7e42F292c6912E7710c838347Ae178B4a\n");
        std::fs::write(&file, text).unwrap();
        let settings = settings::ShellHistory { enabled: true, limit: 500, histfile: Some(file.clone()) };
        let history = collect(&settings, false, &Redactor::knowing([]));
        assert_eq!((history.lines.len(), history.redactions), (50, 1));
        assert_eq!((history.lines[0].line, history.source), (32, Some("shell_history.histfile")));
        assert!(!history.lines[49].command.contains("ghp_"), "{:?}", history.lines[49]);
        let off = settings::ShellHistory { enabled: false, ..settings };
        assert_eq!(collect(&off, false, &Redactor::knowing([])), ShellHistory::default());
        assert_eq!(collect(&off, true, &Redactor::knowing([])).lines.len(), 50);
    }

    #[test]
    fn history_file_follows_precedence() {
        let user = tempfile::tempdir().unwrap();
        std::fs::write(user.path().join(".zsh_history"), "").unwrap();
        let found = |set: Option<&str>, named: Option<&str>| {
            history_file(set.map(Path::new), named.map(PathBuf::from), Some(user.path()))
                .map(|(path, source)| (path.display().to_string(), source))
        };
        let here = user.path().display();
        assert_eq!(found(Some("~/x"), Some("/y")), Some((format!("{here}/x"), "shell_history.histfile")));
        assert_eq!(found(None, Some("/y")), Some(("/y".to_owned(), "HISTFILE")));
        assert_eq!(found(None, None), Some((format!("{here}/.zsh_history"), "zsh")));
    }
}
