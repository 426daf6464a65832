//! Tools: the specification for the model, `tool_call` and `tool_result`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Block, Content, Receipt, Reply};

/// A tool that a model may call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolSpec {
    /// 1 to 64 letters, digits, `_` and `-`.
    pub name: String,
    /// The description for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    // Other programs have other names for it.
    #[serde(alias = "parameters", alias = "inputSchema")]
    pub input_schema: Box<RawValue>,
}

/// A tool call of a model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["name", "input"])))]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, a JSON object; if the model wrote invalid JSON, its text as a string.
    pub input: Box<RawValue>,
    /// Timeout in seconds, if the tool has its own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Reply for ToolCall {
    fn text(&self) -> String {
        format!("{} {}", self.name, self.input.get())
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["name", "content", "images"])))]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text for the model.
    pub content: String,
    /// Image blocks for the model, in addition to the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Block>,
    /// True if the tool failed or was not allowed to run.
    pub is_error: bool,
    /// The exit status, if the tool exited.
    pub exit_code: Option<i32>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Receipt of the ledger entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl ToolResult {
    /// Converts the result to a content block.
    pub fn block(&self) -> Block {
        if self.images.is_empty() {
            return Block::tool_result(&self.id, &self.content, self.is_error);
        }
        let text = [Block::text(&self.content)];
        let shown = Content::Blocks(text.iter().chain(&self.images).cloned().collect());
        Block::tool_result_of(&self.id, &shown, self.is_error)
    }
}

impl Reply for ToolResult {
    fn text(&self) -> String {
        self.content.clone()
    }
}
