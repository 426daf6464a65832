//! The answer to a request that starts no process.

use cp_common::wire::{Receipt, Reply};
use serde::Serialize;

/// What an operation without a process answers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["value"])))]
pub(crate) struct Item {
    /// The operation, `tool.name`.
    pub operation: &'static str,
    /// What it answers.
    pub value: serde_json::Value,
    /// Where it was recorded.
    pub receipt: Receipt,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Item {
    /// What a model reads: the content of a file itself, anything else as JSON.
    pub(crate) fn content(&self) -> String {
        match self.value.get("content").and_then(serde_json::Value::as_str) {
            Some(content) => content.to_owned(),
            None => self.value.to_string(),
        }
    }
}

impl Reply for Item {
    fn text(&self) -> String {
        self.content()
    }
}
