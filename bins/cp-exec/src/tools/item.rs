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
    /// The same as a text, where it has one.
    #[serde(skip)]
    text: Option<Box<str>>,
}

impl Item {
    /// An answer, with the JSON Pointer to what of it is not ours.
    pub(crate) fn new(operation: &'static str, value: serde_json::Value, receipt: Receipt, untrusted: &str) -> Self {
        Self { operation, value, receipt, untrusted: vec![untrusted.to_owned()], text: None }
    }

    /// The same, which a model or a person reads as this text.
    pub(crate) fn shown_as(self, text: String) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    /// What a model reads: the text of the answer or the content of a file, anything else as JSON.
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
