//! The facts about each host that this program relies on: one data file per host.

use std::collections::BTreeMap;

use cp_egress::Destination;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The facts about a host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    /// The version with which the tables were tried.
    pub version: String,
    /// Its directory in a project and in the home directory of the user.
    pub directory: String,
    /// The variable that names another directory of the user, and the path below that.
    pub home: (String, String),
    /// The sandbox of a whole agent.
    pub agent: AgentFacts,
    #[serde(default)]
    pub hook: HookFacts,
    /// The tools of a host with a hook.
    #[serde(default)]
    pub tool: Vec<ToolRow>,
}

/// The sandbox of a whole agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentFacts {
    /// The command that stores a token in the state.
    pub login: Vec<String>,
    /// The domains of its service.
    pub domains: Vec<Destination>,
    /// Variables that pass: settings of its service, and keys. A `*` at the end matches any rest.
    pub environment: Vec<String>,
    /// Variables that it always gets.
    pub set: BTreeMap<String, String>,
    /// The variables that name the private state, each with its directory in the state.
    pub state: BTreeMap<String, String>,
    /// Names of telemetry and updates, whose refusal needs no message; `*.` stands for any name below.
    pub quiet: Vec<String>,
    /// Directories and members of files (`FILE#MEMBER`) of the user's own that a new state does not get.
    pub left_out: Vec<String>,
    /// Files that a new state gets from the user's own.
    pub seed: Vec<Seed>,
}

/// A file that a new state gets.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Seed {
    /// Its paths below the user's own directory of the host; the first that exists is copied.
    pub from: Vec<String>,
    /// Its path in the state.
    pub to: String,
    /// The members that are copied, as paths in which `*` stands for any name; a file without this list is copied as a
    /// whole. Members that hold credentials or run programs are not listed.
    pub members: Vec<String>,
    /// The members that name a definition, each with the table of the definitions. Without its definition a name is not
    /// copied.
    pub definitions: BTreeMap<String, String>,
}

/// The configuration of a hook.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookFacts {
    /// The file with hooks in the directory of the user, and that of a project.
    pub file: String,
    pub project: String,
    /// The events for which the host calls the hook.
    pub events: Vec<String>,
    /// Members of a handler that only this host has.
    #[serde(default)]
    pub handler: Map<String, Value>,
    /// The next step for the user after the installation.
    pub next: String,
}

/// Tools of one kind. The lists hold the names of members of a tool's input.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToolRow {
    pub names: Vec<String>,
    pub does: Does,
    /// The members that hold a command line, the input of a command, or a patch.
    pub command: Vec<String>,
    pub paths: Vec<String>,
    /// The members that hold path patterns.
    pub patterns: Vec<String>,
    /// The members that name the working directory.
    pub directory: Vec<String>,
    /// Inputs, each with the effects that the tool has in the directory /w.
    pub examples: Vec<(String, Vec<String>)>,
}

/// The kind of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
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
    /// Nothing outside of the host. Another agent that it starts asks about its own tool calls.
    #[default]
    None,
}

impl Facts {
    /// The row of a tool.
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolRow> {
        self.tool.iter().find(|row| row.names.iter().any(|known| known == name))
    }
}
