//! Tools: what a model may call, its `tool_call`, and the `tool_result`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Block, Content, Receipt, Reply};

/// A tool that a model may call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolSpec {
    /// 1 to 64 letters, digits, `_` and `-`.
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Box<RawValue>,
}

/// A model asks for a tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["name", "input"])))]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments, a JSON object; where the model wrote none, what it wrote, as a string.
    pub input: Box<RawValue>,
    /// How many seconds it may take, where the tool has a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Reply for ToolCall {
    fn text(&self) -> String {
        format!("{} {}", self.name, self.input.get())
    }
}

/// What the tool answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["name", "content", "images"])))]
pub struct ToolResult {
    /// The call that this answers.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// What it said, for the model.
    pub content: String,
    /// What it showed the model beside that: image blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Block>,
    /// Whether it failed, or was not permitted.
    pub is_error: bool,
    /// Its exit status, where it ran to an end.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub duration_ms: u64,
    /// Where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl ToolResult {
    /// The block of a conversation that it becomes.
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
