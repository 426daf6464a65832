//! Versions of the protocol. Without sessions, each request has the version; earlier versions start with a handshake.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version without sessions.
pub const MODERN: &str = "2026-07-28";
/// The last version with a handshake.
pub const LEGACY: &str = HANDSHAKES[0];
/// The supported versions with a handshake, newest first.
pub const HANDSHAKES: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A client or server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// The `_meta` of a request without a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Meta {
    /// The protocol version of the request.
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub version: String,
    /// The client.
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    pub client: Party,
    /// The capabilities of the client.
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    pub capabilities: Value,
}

impl Meta {
    /// The member of the version.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The member of the capabilities.
    pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
}

/// The parameters of `initialize`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    /// The version that the client requests.
    pub protocol_version: String,
    /// The capabilities of the client.
    #[serde(default)]
    pub capabilities: Value,
    /// The client.
    #[serde(default)]
    pub client_info: Party,
}

/// The result of `server/discover` and of `initialize`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Greeting {
    /// The negotiated version, after a handshake.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol_version: String,
    /// The supported versions without a handshake.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supported_versions: Vec<String>,
    /// The capabilities of the server.
    pub capabilities: Value,
    /// The server.
    pub server_info: Party,
    /// The instructions for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}
