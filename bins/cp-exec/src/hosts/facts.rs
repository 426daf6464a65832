//! The facts about each host that this program relies on: one data file per host.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cp_egress::Destination;
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
    /// The tools of a host with a hook.
    #[serde(default)]
    pub tools: ToolFacts,
}

/// The sandbox of a whole agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentFacts {
    /// The command that stores a token in the state.
    pub login: Vec<String>,
    /// The domains of its service.
    pub domains: Vec<Destination>,
    /// Variables that pass: settings of its service, and keys. A `*` at the end matches any rest.
    pub environment: Vec<String>,
    /// Variables that it always gets.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The variables that name the private state, each with its directory in the state.
    pub state: BTreeMap<String, String>,
    /// Names of telemetry and updates, whose refusal needs no message; `*.` stands for any name below.
    #[serde(default)]
    pub quiet: Vec<String>,
    /// Directories and members of files (`FILE#MEMBER`) of the user's own that a new state does not get.
    #[serde(default)]
    pub left_out: Vec<String>,
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
    /// The members that are copied, as paths in which `*` stands for any name; a file without this list is copied as a
    /// whole. Members that hold credentials or run programs are not listed.
    #[serde(default)]
    pub members: Vec<String>,
    /// The members that name a definition, each with the table of the definitions. Without its definition a name is not
    /// copied.
    #[serde(default)]
    pub definitions: BTreeMap<String, String>,
}

/// The tools of a host.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolFacts {
    pub row: Vec<ToolRow>,
}

/// Tools of one kind. The lists hold the names of members of a tool's input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolRow {
    pub names: Vec<String>,
    pub does: Does,
    /// The members that hold a command line, the input of a command, or a patch.
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub paths: Vec<String>,
    /// The members that hold path patterns.
    #[serde(default)]
    pub patterns: Vec<String>,
    /// The members that name the working directory.
    #[serde(default)]
    pub directory: Vec<String>,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests run the examples"))]
    pub examples: Vec<ToolExample>,
}

/// The effects that a tool has with an input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests run the examples"))]
pub(crate) struct ToolExample {
    pub input: String,
    pub effects: Vec<String>,
}

/// The kind of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Does {
    /// Runs a command line.
    Shell,
    /// Writes to the standard input of a running command.
    Stdin,
    /// Runs the command lines of a file.
    Skill,
    Read,
    Write,
    /// Changes the files that a patch names.
    Patch,
    /// Reads files below a directory, which is the working directory if no member names one.
    Search,
    /// Requests something from the network.
    Fetch,
    /// Starts another agent, whose tool calls are decided about one by one.
    Agent,
    None,
}

impl ToolFacts {
    /// The row of a tool.
    pub(crate) fn row(&self, name: &str) -> Option<&ToolRow> {
        self.row.iter().find(|row| row.names.iter().any(|known| known == name))
    }
}

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
