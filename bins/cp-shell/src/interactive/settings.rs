//! `config/shell.toml`: the settings of interactive sessions. An unknown key is an error.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde::Deserialize;

/// The settings, all optional.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// The history of the person's own shell.
    pub(crate) shell_history: ShellHistory,
    pub(crate) hub: Hub,
    /// The memories recalled for a turn.
    pub(crate) memory: Memory,
    pub(crate) learning: Learning,
    pub(crate) context: Context,
}

/// `[context]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Context {
    /// The context windows of models in tokens, by prefix of the name.
    pub(crate) windows: BTreeMap<String, u64>,
}

/// The context windows of common models in tokens, as stated by their providers.
const WINDOWS: [(&str, u64); 8] = [
    ("claude", 200_000),
    ("gpt-4o", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-5", 400_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("gemini", 1_048_576),
    ("mistral", 128_000),
];

impl Context {
    /// The context window of a model, if known. The settings take precedence, and then the longest prefix.
    pub(crate) fn window(&self, model: &str) -> Option<u64> {
        let longest = |found: &mut dyn Iterator<Item = (&str, u64)>| {
            found
                .filter(|(name, _)| model.starts_with(name))
                .max_by_key(|(name, _)| name.len())
                .map(|(_, tokens)| tokens)
        };
        longest(&mut self.windows.iter().map(|(name, tokens)| (name.as_str(), *tokens)))
            .or_else(|| longest(&mut WINDOWS.into_iter()))
    }
}

/// `[learning]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Learning {
    /// True if the person is asked for memories at the end of a session.
    pub(crate) ask: bool,
}

/// `[shell_history]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ShellHistory {
    /// True if the history is sent with turns.
    pub(crate) enabled: bool,
    /// The maximum number of lines, at most 50.
    pub(crate) limit: usize,
    /// The file, instead of `$HISTFILE`.
    pub(crate) histfile: Option<PathBuf>,
}

/// `[hub]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Hub {
    /// The URL; without it no hub is contacted.
    pub(crate) url: Option<String>,
    /// The topic of workstreams and tasks.
    pub(crate) topic: Option<String>,
    /// The name under which messages are read and notes are posted.
    pub(crate) agent: String,
    /// The time limit of a request.
    pub(crate) timeout_ms: u64,
    /// The brief file of the working directory.
    pub(crate) brief: PathBuf,
}

/// `[memory]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Memory {
    /// The kinds that are recalled; an empty list disables recall.
    pub(crate) kinds: Vec<String>,
    /// The maximum number of memories.
    pub(crate) limit: usize,
}

impl Default for ShellHistory {
    fn default() -> Self {
        Self { enabled: false, limit: 50, histfile: None }
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            url: None,
            topic: None,
            agent: "cp-shell".to_owned(),
            timeout_ms: 1500,
            brief: ".custodian-brief.md".into(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { kinds: ["lesson", "note", "session_turn"].map(str::to_owned).to_vec(), limit: 5 }
    }
}

/// Reads the file; a missing file is empty.
pub(crate) fn load(file: &Path) -> Result<Settings> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Settings::default()),
        Err(e) => return Err(Error::config(format!("cannot read: {e}")).in_file(file)),
    };
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() as u64 + 1);
        Error::config(e.message().to_owned()).at_line(line).in_file(file).hint("cp-shell(1) lists the settings")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Result<Settings> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shell.toml");
        std::fs::write(&file, text).unwrap();
        load(&file)
    }

    #[test]
    fn starter_file_matches_defaults() {
        assert_eq!(loaded(include_str!("../../starter/shell.toml")).unwrap(), Settings::default());
    }

    #[test]
    fn context_window_uses_longest_prefix() {
        let context = loaded("[context.windows]\nqwen = 32768\n\"gpt-4o-mini\" = 64000\n").unwrap().context;
        let windows = ["qwen3:8b", "gpt-4o-mini-2024", "gpt-4o-2024", "stub"].map(|model| context.window(model));
        assert_eq!(windows, [Some(32_768), Some(64_000), Some(128_000), None]);
    }
}
