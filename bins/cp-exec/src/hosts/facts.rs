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
    pub version: String,
    /// The sandbox of a whole agent.
    pub agent: AgentFacts,
    /// The tools of the host.
    pub tools: ToolFacts,
}

/// The sandbox of a whole agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentFacts {}

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
