//! What the MCP servers of a run offer, as `cp-mcp call` describes it.

use std::ffi::OsString;
use std::path::PathBuf;

use cp_common::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::tools::tool::Hints;

/// The servers, as the options of cp-mcp name them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerOptions {
    /// Names, with commands that the policy does not have.
    pub(crate) mcp: Vec<String>,
    /// Files in the form of .mcp.json.
    pub(crate) files: Vec<PathBuf>,
}

impl ServerOptions {
    pub(crate) fn is_empty(&self) -> bool {
        self.mcp.is_empty() && self.files.is_empty()
    }

    /// The options for cp-mcp.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let servers = self.mcp.iter().map(|server| format!("--mcp={server}").into());
        servers.chain(self.files.iter().flat_map(|file| ["--mcp-config".into(), file.into()])).collect()
    }
}

/// What the servers offer.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Offers {
    pub(crate) servers: Vec<Server>,
    pub(crate) tools: Vec<Offer>,
}

/// A server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Server {
    /// Its name.
    pub(crate) name: String,
    /// What started it, with the names of variables and not their values.
    pub(crate) command: Vec<String>,
    /// The variables that it was given, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// tool, or none where it runs outside the sandbox.
    pub(crate) sandbox: String,
    /// The name that it says it has.
    pub(crate) server_name: String,
    /// Which version of itself it says it is.
    pub(crate) server_version: String,
    /// The version of the protocol that it is spoken to in.
    pub(crate) protocol: String,
    #[serde(skip_serializing)]
    pub(crate) instructions: Option<String>,
    /// The name of each tool that is left out, the reason, and the approval that would offer it.
    #[serde(skip_serializing)]
    pub(crate) left_out: Vec<(String, String, Option<String>)>,
    #[serde(skip_serializing)]
    error: Value,
}

impl Server {
    /// Why it does not answer.
    pub(crate) fn failure(&self) -> Option<Error> {
        (!self.error.is_null()).then(|| Error::from_value(&self.error))
    }
}

/// A tool of a server.
#[derive(Clone, Deserialize)]
pub(crate) struct Offer {
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input_schema: Box<RawValue>,
    pub(crate) hints: Hints,
}
