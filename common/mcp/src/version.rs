//! Versions of the protocol. One without sessions says its version with each request; those before it begin with a handshake.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version without sessions.
pub const MODERN: &str = "2026-07-28";
/// The last version with a handshake.
pub const LEGACY: &str = HANDSHAKES[0];
/// The versions with a handshake whose tools are those of the last one, newest first.
pub const HANDSHAKES: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A program at one of the ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// What it calls itself.
    #[serde(default)]
    pub name: String,
    /// Its own version.
    #[serde(default)]
    pub version: String,
}

/// What each request without a session says of the client: its `_meta`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Meta {
    /// The version that the request is written in.
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub version: String,
    /// The client.
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    pub client: Party,
    /// What the client can do.
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    pub capabilities: Value,
}

impl Meta {
    /// The member that has the version.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The member that says what the client can do.
    pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
}

/// What `initialize` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    /// The version that the client prefers.
    pub protocol_version: String,
    /// What the client can do.
    #[serde(default)]
    pub capabilities: Value,
    /// The client.
    #[serde(default)]
    pub client_info: Party,
}

/// What `server/discover` and `initialize` answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Greeting {
    /// The version that holds from now on, after a handshake.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol_version: String,
    /// The versions that the server can be asked in, without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supported_versions: Vec<String>,
    /// What the server offers.
    pub capabilities: Value,
    /// The server.
    pub server_info: Party,
    /// What it says of its tools to a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}
