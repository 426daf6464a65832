//! What servers offer: the first record of `cp-mcp call`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Servers and their tools.
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offers {
    /// The servers.
    pub servers: Vec<OfferingServer>,
    /// Their tools.
    pub tools: Vec<Offer>,
}

/// A server of tools.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OfferingServer {
    /// Its name.
    pub name: String,
    /// The tools that are left out, and the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<(String, String)>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub error: Value,
}

/// A tool of a server.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offer {
    /// The server.
    pub server: String,
    /// The tool's own name.
    pub name: String,
    /// The tool's own description.
    pub description: String,
    /// The JSON Schema of its arguments.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub input_schema: Box<RawValue>,
    /// The hints for calls.
    pub hints: Hints,
}

/// The hints of a tool for its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Hints {
    /// A second call has no further effect.
    pub idempotent: bool,
    /// Each call requires approval.
    pub approve: bool,
    /// The tool changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The time limit of a call, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}
