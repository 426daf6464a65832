//! Requests other than commands: file operations, facts about the machine, and executable tools.

pub(crate) mod executable;
pub(crate) mod filesystem;
pub(crate) mod machine;

use cp_common::wire::{Receipt, Reply};
use serde::Serialize;

/// The answer of an operation without a process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["value"])))]
pub(crate) struct Item {
    /// The operation, `tool.name`.
    pub operation: &'static str,
    /// The result of the operation.
    pub value: serde_json::Value,
    /// The receipt of its entry on the ledger.
    pub receipt: Receipt,
    /// JSON Pointers to untrusted values.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
    /// The same answer as text, if it has a text form.
    #[serde(skip)]
    text: Option<Box<str>>,
}

impl Item {
    /// Creates an answer with a JSON Pointer to its untrusted part.
    pub(crate) fn new(operation: &'static str, value: serde_json::Value, receipt: Receipt, untrusted: &str) -> Self {
        Self { operation, value, receipt, untrusted: vec![untrusted.to_owned()], text: None }
    }

    /// Sets the text form for models and people.
    pub(crate) fn shown_as(self, text: String) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    /// The content for a model: the text of the answer or the content of a file, otherwise JSON.
    pub(crate) fn content(&self) -> String {
        let content = || self.value.get("content").and_then(serde_json::Value::as_str).map(str::to_owned);
        self.text.clone().map(String::from).or_else(content).unwrap_or_else(|| self.value.to_string())
    }
}

impl Reply for Item {
    fn text(&self) -> String {
        self.content()
    }
}
