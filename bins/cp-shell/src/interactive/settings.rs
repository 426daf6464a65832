//! `config/shell.toml`: what only the session with a person needs. An unknown key is an error that names it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde::Deserialize;

/// The file, all of it optional.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// The history of the person's own shell.
    pub(crate) shell_history: ShellHistory,
    /// The lines typed at our prompt.
    pub(crate) history: PromptHistory,
    pub(crate) hub: Hub,
    /// What is recalled for a turn.
    pub(crate) memory: Memory,
    pub(crate) learning: Learning,
    pub(crate) context: Context,
    pub(crate) show: Show,
}

/// `[show]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Show {
    /// Whether a terminal shows what the model thinks.
    pub(crate) reasoning: bool,
}

impl Default for Show {
    fn default() -> Self {
        Self { reasoning: true }
    }
}

/// `[context]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Context {
    /// How many tokens a model can hold, by how its name begins.
    pub(crate) windows: BTreeMap<String, u64>,
}

/// The windows of models that are common, in tokens, as their providers state them.
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
    /// How many tokens a model can hold, where that is known: what the file says wins, and the longest name that fits.
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
    /// Whether a person is asked at the end what is to be remembered.
    pub(crate) ask: bool,
}

/// `[shell_history]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ShellHistory {
    /// Whether it goes into the context of a turn.
    pub(crate) enabled: bool,
    /// How many lines at most; 50 is the most there is.
    pub(crate) limit: usize,
    /// The file, where `$HISTFILE` is not meant.
    pub(crate) histfile: Option<PathBuf>,
}

/// `[history]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PromptHistory {
    /// Whether lines are kept for the next session, without secrets.
    pub(crate) enabled: bool,
    /// How many.
    pub(crate) limit: usize,
}

/// `[hub]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Hub {
    /// Where it listens; without it no hub is asked.
    pub(crate) url: Option<String>,
    /// Whose workstreams and tasks to ask for.
    pub(crate) topic: Option<String>,
    /// Who reads messages and posts notes.
    pub(crate) agent: String,
    /// How long one question may take.
    pub(crate) timeout_ms: u64,
    /// The file that tells a newcomer what is going on.
    pub(crate) brief: PathBuf,
}

/// `[memory]`
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Memory {
    /// Which kinds are recalled; none turns it off.
    pub(crate) kinds: Vec<String>,
    /// How many memories at most.
    pub(crate) limit: usize,
}

impl Default for ShellHistory {
    fn default() -> Self {
        Self { enabled: false, limit: 50, histfile: None }
    }
}

impl Default for PromptHistory {
    fn default() -> Self {
        Self { enabled: false, limit: 1000 }
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

/// Reads the file. One that is not there is an empty one.
pub(crate) fn load(file: &Path) -> Result<Settings> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Settings::default()),
        Err(e) => return Err(Error::config(format!("cannot read: {e}")).in_file(file)),
    };
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() as u64 + 1);
        Error::config(e.message().to_owned()).at_line(line).in_file(file).hint("cp-shell(1) lists what it may hold")
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
    fn what_is_not_said_is_off_or_small() {
        let settings = loaded("[hub]\nurl = \"http://127.0.0.1:1\"\n").unwrap();
        assert!(!settings.shell_history.enabled && !settings.history.enabled);
        assert_eq!(settings.shell_history.limit, 50);
        assert_eq!(settings.hub.agent, "cp-shell");
        assert_eq!(load(Path::new("/nowhere/shell.toml")).unwrap(), Settings::default());
    }

    #[test]
    fn the_starter_file_says_the_defaults() {
        assert_eq!(loaded(include_str!("../../starter/shell.toml")).unwrap(), Settings::default());
    }

    #[test]
    fn the_window_is_that_of_the_longest_name_that_fits() {
        let context = loaded("[context.windows]\nqwen = 32768\n\"gpt-4o-mini\" = 64000\n").unwrap().context;
        let windows = ["qwen3:8b", "gpt-4o-mini-2024", "gpt-4o-2024", "stub"].map(|model| context.window(model));
        assert_eq!(windows, [Some(32_768), Some(64_000), Some(128_000), None]);
    }

    #[test]
    fn a_slip_is_named_with_its_line() {
        let e = loaded("[shell_history]\nenabeld = true\n").unwrap_err();
        assert!(e.message().contains("line 2") && e.message().contains("enabeld"), "{e}");
    }
}
