//! What the servers of `call` offer.

use cp_common::output::printable_line;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A server, and what it offers besides its tools.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ServerOffers {
    /// Its name, command, variables, sandbox, version and protocol.
    #[serde(flatten)]
    pub(crate) server: serde_json::Map<String, Value>,
    /// Its instructions for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<String>,
    /// The tools that are left out: the name, the reason, and the approval that would offer it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<(String, String, Option<String>)>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) error: Value,
}

/// A tool of a server.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Offer {
    /// The server.
    pub(crate) server: String,
    /// The tool's own name.
    pub(crate) name: String,
    /// The tool's own description.
    pub(crate) description: String,
    /// The JSON Schema of its arguments.
    #[cfg_attr(test, schemars(with = "Value"))]
    pub(crate) input_schema: Box<RawValue>,
    /// The hints for calls.
    pub(crate) hints: Hints,
}

impl Offer {
    /// The name by which a call names it, and the beginning of its description.
    pub(crate) fn text(&self) -> String {
        let Self { server, name, description, .. } = self;
        printable_line(&format!("{server}/{name:<24} {}", description.lines().next().unwrap_or_default()))
    }
}

/// The hints of a tool for its calls.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Hints {
    /// A second call has no further effect.
    pub(crate) idempotent: bool,
    /// Each call requires approval.
    pub(crate) approve: bool,
    /// The tool changes nothing.
    pub(crate) read_only: bool,
}
