//! A tool: its description for the model, its origin, and how its calls are treated.

use std::path::PathBuf;

use cp_common::output::printable_line;
use cp_common::wire::{Reply, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of the built-in tool that gives a task to another run.
pub(crate) const AGENT: &str = "agent";
/// The name of the built-in tool that runs a command line.
pub(crate) const BASH: &str = "bash";

/// A tool that was resolved: everything about it is pinned for the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["description", "input_schema"])))]
pub(crate) struct Tool {
    /// What the model calls it.
    pub(crate) name: String,
    /// What it does, in its own words.
    pub(crate) description: String,
    /// The JSON Schema of its arguments.
    pub(crate) input_schema: Box<RawValue>,
    /// Where it came from.
    pub(crate) origin: Origin,
    /// How it wants to be treated.
    pub(crate) hints: Hints,
}

/// Where a tool came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Origin {
    /// Part of these programs.
    Builtin,
    /// A file that is run.
    Executable {
        /// Its path, absolute and without links.
        path: PathBuf,
        /// The link that it was found as, where that has another name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<PathBuf>,
        /// The hash of its bytes when it was described.
        sha256: String,
    },
    /// A tool of an MCP server.
    Mcp {
        /// What the server is called here.
        server: String,
        /// What the tool is called there.
        tool: String,
    },
}

/// What a tool says of itself beside its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Hints {
    /// Calling it twice does no more than calling it once.
    #[serde(default)]
    pub(crate) idempotent: bool,
    /// A person decides about each call.
    #[serde(default)]
    pub(crate) approve: bool,
    /// It changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) read_only: bool,
    /// How many seconds a call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<f64>,
}

impl Tool {
    /// What the model sees of it.
    pub(crate) fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
        }
    }

    /// Whether it is the one that gives a task to an agent.
    pub(crate) fn is_agent(&self) -> bool {
        self.origin == Origin::Builtin && self.name == AGENT
    }

    /// The name that cp-exec knows it by.
    pub(crate) fn exec_name(&self) -> String {
        match &self.origin {
            Origin::Executable { path, link, .. } => {
                let called = link.as_ref().unwrap_or(path);
                called.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
            }
            Origin::Builtin | Origin::Mcp { .. } => self.name.clone(),
        }
    }
}

impl Reply for Tool {
    fn text(&self) -> String {
        printable_line(&format!("{:<24} {}", self.name, self.description.lines().next().unwrap_or_default()))
    }
}

/// What may be called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// By these names; none: all.
    pub(crate) names: Vec<String>,
    /// Only what changes nothing.
    pub(crate) read_only: bool,
}

impl Allowed {
    /// Whether a name may be called.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|allowed| allowed == name)
    }
}

/// A file that may be a tool, and what is known of it before it is asked.
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// The link that it was found as, where that has another name.
    pub(super) link: Option<PathBuf>,
    pub(super) sha256: String,
    pub(super) described: Option<String>,
}

impl Candidate {
    /// The name that cp-exec finds it by.
    pub(super) fn file_name(&self) -> String {
        let called = self.link.as_ref().unwrap_or(&self.path);
        called.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}
