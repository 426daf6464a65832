//! `config/shell.toml`: the settings of interactive sessions. The starter file has the defaults; an unknown key is an
//! error.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cp_common::home::config::explain;
use cp_common::{Error, Result};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The settings.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
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
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// The context windows of models in tokens, by prefix of the name.
    pub(crate) windows: BTreeMap<String, u64>,
}

impl Context {
    /// The context window of a model, by the longest prefix, if known.
    pub(crate) fn window(&self, model: &str) -> Option<u64> {
        let known = self.windows.iter().filter(|(name, _)| model.starts_with(name.as_str()));
        known.max_by_key(|(name, _)| name.len()).map(|(_, tokens)| *tokens)
    }
}

/// `[learning]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Learning {
    /// True if the person is asked for memories at the end of a session.
    pub(crate) ask: bool,
}

/// `[shell_history]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// The kinds that are recalled; an empty list disables recall.
    pub(crate) kinds: Vec<String>,
    /// The maximum number of memories.
    pub(crate) limit: usize,
}

/// The file that `cp-shell init` writes.
pub(crate) const STARTER: &str = include_str!("../../starter/shell.toml");

/// Reads the file; a missing file is empty.
pub(crate) fn load(file: &Path) -> Result<Settings> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => String::new(),
        Err(e) => return Err(Error::config(format!("cannot read: {e}")).in_file(file)),
    };
    let hint = "correct the line; `cp-shell init` writes a new file if this one is removed";
    merged(&text).map_err(|e| explain(&text, &e).in_file(file).with_absent("hint", hint))
}

/// The settings of a text, and the defaults of those that it does not have.
fn merged(text: &str) -> std::result::Result<Settings, toml::de::Error> {
    let given = DeTable::parse(text)?;
    let mut settings = DeTable::parse(STARTER)?.into_inner();
    let span = given.span();
    merge(&mut settings, given.into_inner());
    Settings::deserialize(toml::Deserializer::from(Spanned::new(span, settings)))
}

/// Replaces the values of a table by those of another one.
fn merge<'a>(table: &mut DeTable<'a>, given: DeTable<'a>) {
    for (name, value) in given {
        let span = value.span();
        match (table.get_mut(&name).map(Spanned::get_mut), value.into_inner()) {
            (Some(DeValue::Table(inner)), DeValue::Table(given)) => merge(inner, given),
            (_, value) => drop(table.insert(name, Spanned::new(span, value))),
        }
    }
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
        assert_eq!(loaded(STARTER).unwrap(), loaded("").unwrap());
    }

    #[test]
    fn unknown_key_is_named_with_its_line() {
        let error = loaded("[hub]\nagent = \"me\"\nurll = \"http://x\"\n").unwrap_err();
        assert!(error.message().contains("line 3: unknown key `urll`"), "{error}");
    }

    #[test]
    fn context_window_uses_longest_prefix() {
        let context = loaded("[context.windows]\nqwen = 32768\n\"gpt-4o-mini\" = 64000\n").unwrap().context;
        let windows = ["qwen3:8b", "gpt-4o-mini-2024", "gpt-4o-2024", "stub"].map(|model| context.window(model));
        assert_eq!(windows, [Some(32_768), Some(64_000), Some(128_000), None]);
    }
}
