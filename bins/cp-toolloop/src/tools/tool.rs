//! A tool: its description for the model, its origin, and the hints for its calls.

use std::path::PathBuf;

use cp_common::wire::ToolSpec;
use cp_mcp_wire::Hints;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of the built-in tool that runs a command line.
pub(crate) const BASH: &str = "bash";

/// A resolved tool, which is pinned for the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["description", "input_schema"])))]
pub(crate) struct Tool {
    /// The name for the model.
    pub(crate) name: String,
    /// The tool's own description.
    pub(crate) description: String,
    /// The JSON Schema of its arguments.
    pub(crate) input_schema: Box<RawValue>,
    /// The origin of the tool.
    pub(crate) origin: Origin,
    /// The hints for calls.
    pub(crate) hints: Hints,
}

/// The origin of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Origin {
    /// Part of these programs.
    Builtin,
    /// An executable file.
    Executable(Executable),
    /// A tool of an MCP server.
    Mcp {
        /// The name of the server.
        server: String,
        /// The name of the tool at the server.
        tool: String,
    },
}

/// An executable file that is a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
pub(crate) struct Executable {
    /// Its path, absolute and without links.
    pub(crate) path: PathBuf,
    /// The link by which it was found, if the link has another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<PathBuf>,
    /// The hash of its bytes when it was described.
    pub(crate) sha256: String,
}

impl Executable {
    /// The name by which cp-exec finds it: that of the link, if there is one.
    pub(crate) fn name(&self) -> String {
        let file = self.link.as_ref().unwrap_or(&self.path);
        file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

impl Tool {
    /// The specification for the model.
    pub(crate) fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
        }
    }

    /// The tool in one line, which may have control characters.
    pub(crate) fn line(&self) -> String {
        format!("{:<24} {}", self.name, self.description.lines().next().unwrap_or_default())
    }

    /// The name by which its executor finds it.
    pub(crate) fn name_in_executor(&self) -> String {
        match &self.origin {
            Origin::Executable(file) => file.name(),
            Origin::Mcp { server, tool } => format!("{server}/{tool}"),
            Origin::Builtin => self.name.clone(),
        }
    }
}

/// The tools that may be called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// The allowed names; empty for all.
    pub(crate) names: Vec<String>,
    /// True if only read-only tools are allowed.
    pub(crate) read_only: bool,
}

impl Allowed {
    /// True if a name is allowed.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|allowed| allowed == name)
    }
}

/// A file that may be a tool, and its description, if that is not asked from the file.
pub(super) struct Candidate {
    pub(super) file: Executable,
    pub(super) described: Option<String>,
}
