//! The facts about each host that this program relies on: one data file per host.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cp_hosts::Host;
use serde::Deserialize;

/// The facts about a host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    /// The version with which the tables were tried.
    #[expect(dead_code, reason = "for the readers of the files")]
    pub version: String,
    /// The sandbox of a whole agent.
    pub agent: AgentFacts,
    /// The tools of the host.
    #[expect(dead_code, reason = "for the readers of the files")]
    pub tools: ToolFacts,
}

/// The sandbox of a whole agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentFacts {
    /// The command that stores a token in the state.
    pub login: Vec<String>,
    /// The domains of its service.
    pub domains: Vec<String>,
    /// Variables that pass: settings of its service, and keys. A `*` at the end matches any rest.
    pub environment: Vec<String>,
    /// Variables that it always gets.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The variables that name the private state, each with its directory in the state.
    pub state: BTreeMap<String, String>,
    /// Files that a new state gets from the user's own.
    #[serde(default)]
    pub seed: Vec<Seed>,
}

/// A file that a new state gets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seed {
    /// Its paths below the user's own directory of the host; the first that exists is copied.
    pub from: Vec<String>,
    /// Its path in the state.
    pub to: String,
    /// The top-level members that are copied; a file without this list is copied as a whole. Members that hold
    /// credentials or run programs are not listed.
    #[serde(default)]
    pub members: Vec<String>,
}

/// The tools of a host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolFacts {}

impl Facts {
    /// The facts about a host.
    pub(crate) fn of(host: Host) -> &'static Self {
        static FACTS: LazyLock<BTreeMap<&'static str, Facts>> = LazyLock::new(|| {
            let texts = [
                ("claude", include_str!("claude.toml")),
                ("codex", include_str!("codex.toml")),
                ("copilot", include_str!("copilot.toml")),
                ("gemini", include_str!("gemini.toml")),
                ("opencode", include_str!("opencode.toml")),
            ];
            let read = |(name, text)| match toml::from_str(text) {
                Ok(facts) => (name, facts),
                Err(error) => unreachable!("{name}.toml: {error}"),
            };
            texts.into_iter().map(read).collect()
        });
        &FACTS[host.name()]
    }
}
