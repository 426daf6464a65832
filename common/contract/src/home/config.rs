//! Settings: options, then the environment, then `config/cp.toml`, then the default. Each value records its source.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::home::files::owner_hint;
use crate::wire::{Error, Result};

/// The source of a value, the one that counts most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Origin {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment,
    /// `config/cp.toml`.
    File,
    /// Built in.
    Default,
}

/// A setting that can be given in the environment or in the file.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The dotted name in `cp.toml` and for `config get`.
    pub key: &'static str,
    /// The environment variable, if there is one.
    pub variable: Option<&'static str>,
    /// The default value.
    pub default: Option<&'static str>,
    /// The description, one line.
    pub meaning: &'static str,
}

const fn setting(
    key: &'static str,
    variable: Option<&'static str>,
    default: Option<&'static str>,
    meaning: &'static str,
) -> Setting {
    Setting { key, variable, default, meaning }
}

/// All settings.
pub const SETTINGS: [Setting; 11] = [
    setting("agent", Some("CP_AGENT"), Some("default"), "the agent: an id in config/agents.json, or default"),
    setting("tier", Some("CP_TIER"), Some("ho1"), "the tier of new sessions and runs: ho1, ho2 or ho3"),
    setting("format", Some("CP_FORMAT"), Some("json"), "how results are written: json, text or raw"),
    setting("model", Some("CP_MODEL"), None, "the model of cp-llm"),
    setting(
        "backend",
        Some("CP_BACKEND"),
        None,
        "the backend of cp-llm: a provider, an endpoint of this file, stub, or a program",
    ),
    setting("stub_script", Some("CP_STUB_SCRIPT"), None, "the script of the stub backend"),
    setting("tool_backend", Some("CP_TOOL_BACKEND"), Some("native"), "the loop backend of cp-toolloop"),
    setting("tools_dir", Some("CP_TOOLS_DIR"), None, "a directory of tools for cp-toolloop"),
    setting("session", Some("CP_SESSION"), None, "the session used when none is named"),
    setting("ledger", Some("CP_LEDGER"), None, "the ledger that cp-log appends to when none is named"),
    setting("update_from", None, None, "where cp-shell update finds releases: a URL or a directory"),
];

/// The tables besides the settings. The program that uses a table defines its members, see [`Config::tables`].
const TABLES: [&str; 2] = ["endpoints", "aliases"];

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value, as text.
    pub text: String,
    /// The source.
    pub origin: Origin,
}

/// The settings of one home.
#[derive(Clone, Debug, Default)]
pub struct Config {
    file: PathBuf,
    text: String,
    table: toml::Table,
}

impl Config {
    /// Reads `config/cp.toml`. A missing file counts as empty; an unknown key fails with the nearest known one.
    pub fn load(file: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => String::new(),
            Err(e) => {
                let error = Error::config(format!("cannot read: {e}")).in_file(file).fatal();
                return Err(owner_hint(file).into_iter().fold(error, Error::hint));
            }
        };
        let table: toml::Table = toml::from_str(&text).map_err(|e| explain(&text, &e).in_file(file).fatal())?;
        let known = || SETTINGS.iter().map(|s| s.key).chain(TABLES);
        if let Some(key) = table.keys().find(|key| !known().any(|name| name == key.as_str())) {
            let line =
                text.lines().position(|l| l.trim_start().starts_with(key.as_str())).map_or(1, |at| at as u64 + 1);
            let error = Error::config(format!("unknown key `{key}`")).at_line(line).in_file(file).fatal();
            return Err(error.nearest(key, known(), "`cp-shell config` lists the keys"));
        }
        let is_table = |key: &str| TABLES.contains(&key);
        let mut wrong =
            table.iter().filter(|(key, value)| if is_table(key) { !value.is_table() } else { !value.is_str() });
        if let Some((key, _)) = wrong.next() {
            let (kind, hint) = if is_table(key) {
                ("table", format!("write [{key}] on a line of its own"))
            } else {
                ("string", format!("write {key} = \"…\""))
            };
            return Err(Error::config(format!("`{key}` must be a {kind}")).in_file(file).hint(hint).fatal());
        }
        Ok(Self { file: file.to_owned(), text, table })
    }

    /// Returns the value of a setting; `flag` is the option of the command line. `None` if no source has a value.
    pub fn get(&self, key: &str, flag: Option<&str>) -> Option<Value> {
        let value = |text: &str, origin| Some(Value { text: text.to_owned(), origin });
        if let Some(flag) = flag {
            return value(flag, Origin::Flag);
        }
        let setting = SETTINGS.iter().find(|s| s.key == key)?;
        if let Some(text) = setting.variable.and_then(variable) {
            return value(&text, Origin::Environment);
        }
        if let Some(entry) = self.table.get(key) {
            return entry.as_str().and_then(|text| value(text, Origin::File));
        }
        setting.default.and_then(|text| value(text, Origin::Default))
    }

    /// Returns the text of a setting, without its source.
    pub fn text(&self, key: &str, flag: Option<&str>) -> Option<String> {
        self.get(key, flag).map(|value| value.text)
    }

    /// Decodes the tables besides the settings. An unknown member fails with its line and the nearest known one.
    pub fn tables<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(&self.text).map_err(|e| explain(&self.text, &e).in_file(&self.file).fatal())
    }

    /// Returns the names in one of these tables.
    pub fn names(&self, table: &str) -> impl Iterator<Item = &str> {
        self.table
            .get(table)
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(|table| table.keys())
            .map(String::as_str)
    }

    /// Makes an error for a place in the file; [`Self::tables`] returns places as spanned values.
    pub fn refused(&self, message: impl Into<String>, at: usize) -> Error {
        Error::config(message).at_line(line_of(&self.text, at)).in_file(&self.file).fatal()
    }

    /// Returns the path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// Returns the value of an environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn line_of(text: &str, at: usize) -> u64 {
    text.get(..at).map_or(1, |before| before.matches('\n').count() as u64 + 1)
}

/// Converts an error of the parser: the line, the unknown word, and the nearest known key or value.
pub fn explain(text: &str, error: &toml::de::Error) -> Error {
    let line = error.span().map_or(1, |span| line_of(text, span.start));
    let message = error.message().lines().next().unwrap_or_default().to_owned();
    let what = match message.split_once(" `") {
        Some(("unknown field", _)) => "key",
        Some(("unknown variant", _)) => "value",
        _ => return Error::config(message).at_line(line),
    };
    // "unknown field `a`, expected one of `b`, `c`"
    let mut quoted = message.split('`').skip(1).step_by(2);
    let word = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let error = Error::config(format!("unknown {what} `{word}`")).at_line(line).with(what, word);
    error.nearest(word, known.iter().copied(), &format!("expected one of: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn load(text: &str) -> Result<Config> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cp.toml");
        std::fs::write(&file, text).unwrap();
        Config::load(&file)
    }

    #[test]
    fn flag_overrides_file_and_file_overrides_default() {
        let config = load("tier = \"ho2\"\n").unwrap();
        assert_eq!(config.get("tier", None), Some(Value { text: "ho2".into(), origin: Origin::File }));
        assert_eq!(config.get("tier", Some("ho3")).unwrap().origin, Origin::Flag);
        assert_eq!(config.get("tool_backend", None).unwrap().origin, Origin::Default);
        assert_eq!(config.get("stub_script", None), None);
    }

    #[test]
    fn tables_are_decoded_by_their_own_type() {
        #[derive(serde::Deserialize)]
        struct Tables {
            endpoints: BTreeMap<String, Endpoint>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Endpoint {
            model: String,
        }
        let config = load("tier = \"ho2\"\n[endpoints.a]\nmodel = \"x\"\n[aliases]\nb = \"a/x\"\n").unwrap();
        assert_eq!(config.text("tier", None).unwrap(), "ho2");
        assert_eq!(config.tables::<Tables>().unwrap().endpoints["a"].model, "x");
        assert_eq!(config.names("aliases").collect::<Vec<_>>(), ["b"]);
        let e = load("\n[endpoints.a]\nmodle = \"x\"\n").unwrap().tables::<Tables>().err().unwrap();
        assert!(e.message().contains("line 3") && e.hint_text().unwrap().contains("`model`"), "{e}");
        assert!(load("endpoints = \"x\"\n").is_err() && load("[tier]\n").is_err() && load("[endpoint]\n").is_err());
    }

    #[test]
    fn unknown_key_fails_with_line_and_nearest() {
        let e = load("tier = \"ho1\"\nmodle = \"x\"\n").unwrap_err();
        assert!(e.message().contains("line 2") && e.message().contains("modle"), "{e}");
        assert!(e.hint_text().unwrap().contains("`model`"));
        assert!(load("tier = \n").unwrap_err().message().contains("line 1"));
    }
}
