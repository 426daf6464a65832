//! Completion of values that depend on the home: sessions, runs, ledgers, agents and models.

use std::path::Path;

use clap::Arg;
use serde_json::Value;

use crate::home::config::Config;
use crate::home::{Home, TIERS};
use crate::program::command;

/// The source of an argument's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Sessions,
    Runs,
    Ledgers,
    Agents,
    Models,
    Words(&'static [&'static str]),
    Files,
    Directories,
    Unknown,
}

/// The names of backends. A user can replace each with a program.
const BACKENDS: &[&str] =
    &["anthropic", "openai", "openai-responses", "gemini", "ollama", "llamacpp", "vllm", "lmstudio", "llm", "stub"];
/// The names of loop backends.
const LOOPS: &[&str] = &["native", "bash", "llm", "elixir"];

impl Source {
    /// Selects the source by the name of an option, or by the value name of an operand.
    pub(super) fn of(argument: &Arg, program: &str) -> Self {
        let value = command::value_name(argument);
        match (argument.get_long().unwrap_or_default(), value.as_str()) {
            ("session" | "ids", _) | ("", "S") => Self::Sessions,
            ("agent", _) => Self::Agents,
            ("model", _) => Self::Models,
            ("backend", _) => Self::Words(BACKENDS),
            ("tool-backend", _) => Self::Words(LOOPS),
            ("ledger", _) => Self::Ledgers,
            ("" | "file", "FILE") if program == "cp-log" => Self::Ledgers,
            (_, "RUN" | "FILE|RUN") => Self::Runs,
            (_, "DIR") => Self::Directories,
            (_, value) if ["FILE", "OUT", "KEY", "PROGRAM", "DIR|FILE"].iter().any(|name| value.ends_with(name)) => {
                Self::Files
            }
            _ => Self::Unknown,
        }
    }

    /// Returns the values. Unreadable sources are empty, because completion must not print errors.
    pub(super) fn lines(self, home: Option<&Home>) -> Vec<String> {
        let found = home.map(|home| match self {
            Self::Sessions => home.all_sessions().unwrap_or_default().into_iter().map(|session| session.id).collect(),
            Self::Runs => runs(home),
            Self::Ledgers => ledgers(home),
            Self::Agents => agents(home),
            Self::Models => models(home),
            Self::Words(_) | Self::Files | Self::Directories | Self::Unknown => Vec::new(),
        });
        let mut lines = found.unwrap_or_default();
        match self {
            Self::Words(words) => lines.extend(words.iter().map(ToString::to_string)),
            Self::Files | Self::Ledgers => lines.push(":files".to_owned()),
            Self::Directories => lines.push(":directories".to_owned()),
            Self::Sessions | Self::Runs | Self::Agents | Self::Models | Self::Unknown => {}
        }
        lines
    }
}

/// Returns the names in a directory that end with `end`, sorted.
fn names(directory: &Path, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(end) && !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

fn runs(home: &Home) -> Vec<String> {
    let ledgers = TIERS.into_iter().flat_map(|tier| names(&home.runs(tier), ".jsonl"));
    ledgers.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect()
}

fn ledgers(home: &Home) -> Vec<String> {
    let directory = home.path("ledger");
    names(&directory, ".jsonl").iter().map(|name| directory.join(name).display().to_string()).collect()
}

fn agents(home: &Home) -> Vec<String> {
    let registered = home.agents::<Value>().unwrap_or_default().into_keys();
    let mut agents: Vec<String> =
        registered.chain(names(&home.path("agents"), "")).chain(["default".to_owned()]).collect();
    agents.sort();
    agents.dedup();
    agents
}

/// Returns the models in the settings and the price table, the aliases, and the endpoints as prefixes.
fn models(home: &Home) -> Vec<String> {
    let config = Config::load(&home.config_file()).unwrap_or_default();
    let endpoints = config.names("endpoints").map(|name| format!("{name}/"));
    let named = config.names("aliases").map(str::to_owned).chain(endpoints);
    let text = std::fs::read_to_string(home.path("config/prices.toml")).unwrap_or_default();
    let priced = toml::from_str::<toml::Table>(&text).unwrap_or_default();
    let mut models: Vec<String> = priced
        .iter()
        .filter(|(_, row)| row.is_table())
        .map(|(name, _)| name.clone())
        .chain(config.text("model", None))
        .chain(named)
        .collect();
    models.sort();
    models.dedup();
    models
}
