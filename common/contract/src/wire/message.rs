//! `message` and `delta`: the response of a model, whole or in pieces; and its tools: the specification, `tool_call` and
//! `tool_result`.

use std::ops::AddAssign;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Block, Content, Receipt, Reply, Turn};

/// The response of a model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["content", "tool_calls", "blocks", "input", "row", "parsed", "extracted"])))]
pub struct Message {
    /// The provider's id.
    pub id: String,
    /// assistant.
    pub role: String,
    /// The content: a text, or blocks.
    pub content: Content,
    /// The complete tool calls of the model.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// The response as the provider sent it, in order; absent if `content` and `tool_calls` represent all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// The turns that this message answers and that no session contains yet.
    #[serde(default)]
    pub input: Vec<Turn>,
    /// The model that answered.
    pub model: String,
    /// The kind of backend.
    pub backend: String,
    /// The name of the endpoint; absent if the backend does not report one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, refusal or `model_context_window_exceeded`.
    pub stop_reason: String,
    /// Tokens and cost; null if the provider does not report them.
    #[serde(default, serialize_with = "usage_or_null", deserialize_with = "usage_of_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Usage>"))]
    pub usage: Usage,
    /// True if the answer came from the cache and cost nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The session of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The agent of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The row of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<Box<RawValue>>,
    /// The answer as JSON, if a schema was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parsed: Option<Box<RawValue>>,
    /// The first fenced code block of the answer, if it was requested and exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extracted: Option<Extracted>,
    /// Receipt of the ledger entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// The hash of the answered request, as in its ledger entries; after a repair request, the hash of the first
    /// request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<String>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Message {
    /// Converts the message to a turn of a conversation.
    pub fn turn(&self) -> Turn {
        let content = self.content.clone().with_calls(&self.tool_calls);
        Turn { role: self.role.clone(), content, blocks: self.blocks.clone() }
    }

    /// Marks the model's output and the prompt's row as untrusted.
    pub fn mark(&mut self) {
        let handed_on = self.row.as_ref().map(|_| "/row");
        let parsed = self.parsed.as_ref().map(|_| "/parsed");
        let blocks = (!self.blocks.is_empty()).then_some("/blocks");
        let marks = ["/content", "/tool_calls", "/input"].into_iter().chain(blocks).chain(handed_on).chain(parsed);
        let marks = marks.chain(self.extracted.as_ref().map(|_| "/extracted"));
        self.untrusted = marks.map(str::to_owned).collect();
    }
}

impl Reply for Message {
    fn text(&self) -> String {
        let extracted = self.extracted.as_ref().map(|block| block.text.clone());
        // The content may have words and a fence around the JSON.
        let parsed = || self.parsed.as_ref().map(|parsed| parsed.get().to_owned());
        extracted.or_else(parsed).unwrap_or_else(|| self.content.text())
    }
}

/// A fenced code block of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Extracted {
    /// The first word after the fence; null if there is none.
    pub language: Option<String>,
    /// The text between the fences, without the last line feed.
    pub text: String,
}

/// Encodes an empty usage as null: each answer has tokens, or a cost of zero.
fn usage_or_null<S: Serializer>(usage: &Usage, to: S) -> Result<S::Ok, S::Error> {
    Some(usage).filter(|usage| **usage != Usage::default()).serialize(to)
}

fn usage_of_null<'de, D: Deserializer<'de>>(from: D) -> Result<Usage, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// Tokens and cost of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Input tokens, without those read from a cache.
    #[serde(default)]
    pub input_tokens: u64,
    /// Output tokens.
    #[serde(default)]
    pub output_tokens: u64,
    /// Tokens read from a cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Tokens written to a cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// US dollars; null if the price of the model is unknown.
    #[serde(default)]
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// The tokens of all kinds.
    pub const fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens
    }
}

impl AddAssign<&Self> for Usage {
    /// Adds the usage of another answer. An unknown cost makes the sum unknown.
    fn add_assign(&mut self, other: &Self) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_read_tokens += other.cache_read_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
        self.cost_usd = self.cost_usd.zip(other.cost_usd).map(|(sum, one)| sum + one);
    }
}

/// A piece of a message that is not complete yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["text", "thinking"])))]
pub struct Delta {
    /// The new text.
    pub text: String,
    /// New thinking, which is not part of the answer; `text` is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Delta {
    /// Makes a delta of text.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), thinking: None, untrusted: vec!["/text".to_owned()] }
    }

    /// Makes a delta of thinking.
    pub fn of_thinking(text: &str) -> Self {
        Self { text: String::new(), thinking: Some(text.to_owned()), untrusted: vec!["/thinking".to_owned()] }
    }
}

impl Reply for Delta {
    fn text(&self) -> String {
        self.text.clone()
    }
}

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
