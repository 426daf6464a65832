//! The lines typed at the prompt, kept for the next session where the settings say so: without secrets, in a file of the person's own.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use cp_common::home::{make_directory, write_whole};
use cp_common::{Error, Result};
use cp_redact::Redactor;

use crate::interactive::settings;

/// The lines that are kept.
#[derive(Debug)]
pub(crate) struct PromptHistory {
    file: PathBuf,
    wanted: bool,
    limit: usize,
}

impl PromptHistory {
    /// The lines in this file.
    pub(crate) fn new(file: PathBuf, settings: &settings::PromptHistory) -> Self {
        Self { file, wanted: settings.enabled, limit: settings.limit.clamp(1, 100_000) }
    }

    /// Those of earlier sessions, oldest first. A file that has grown to twice the limit is cut to it.
    pub(crate) fn load(&self) -> Vec<String> {
        if !self.wanted {
            return Vec::new();
        }
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let newest = &lines[lines.len().saturating_sub(self.limit)..];
        if lines.len() > 2 * self.limit {
            // A later session tries again: the lines are still there.
            let _ = write_whole(&self.file, (newest.join("\n") + "\n").as_bytes());
        }
        newest.iter().map(|line| line.replace("\\n", "\n").replace("\\\\", "\\")).collect()
    }

    /// Keeps a line, unless it begins with a blank.
    pub(crate) fn add(&self, line: &str, redactor: &Redactor) -> Result<()> {
        if !self.wanted || line.starts_with(char::is_whitespace) || line.trim().is_empty() {
            return Ok(());
        }
        let (line, _) = redactor.redact_text(line);
        let line = line.replace('\\', "\\\\").replace('\n', "\\n") + "\n";
        if let Some(directory) = self.file.parent() {
            make_directory(directory)?;
        }
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.file);
        opened
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|e| Error::io("writing the prompt history", e).in_file(&self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_without_their_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("state/history");
        let kept = PromptHistory::new(file.clone(), &settings::PromptHistory { enabled: true, limit: 2 });
        let redactor = Redactor::knowing([]);
        for line in ["one", " not this", "two\nlines", "password=hunter2hunter2 x"] {
            kept.add(line, &redactor).unwrap();
        }
        let lines = kept.load();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "two\nlines");
        assert!(!std::fs::read_to_string(&file).unwrap().contains("hunter2"));
    }

    #[test]
    fn nothing_is_kept_where_it_is_not_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history");
        let kept = PromptHistory::new(file.clone(), &settings::PromptHistory { enabled: false, limit: 2 });
        kept.add("one", &Redactor::knowing([])).unwrap();
        assert!(!file.exists() && kept.load().is_empty());
    }
}
