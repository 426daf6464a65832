//! `message` and `delta`: what came back from a model.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Block, Content, Receipt, Reply, ToolCall, Turn};

/// What came back from a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["content", "tool_calls", "blocks", "input", "row", "parsed", "extracted"])))]
pub struct Message {
    /// The provider's id of it.
    pub id: String,
    /// assistant.
    pub role: String,
    /// The content: a text, or blocks.
    pub content: Content,
    /// The tools that the model calls, complete.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// The answer as its provider gave it, in order; absent where the content and the calls say all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// The turns that this answers and that no session has yet.
    #[serde(default)]
    pub input: Vec<Turn>,
    /// The model that answered.
    pub model: String,
    /// How it was asked.
    pub backend: String,
    /// Who was asked, by name; absent where a program does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, refusal or `model_context_window_exceeded`.
    pub stop_reason: String,
    /// What it cost.
    pub usage: Usage,
    /// Whether it was taken from the cache, and cost nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The session that the prompt named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The agent that the prompt named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The row that the prompt carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<Box<RawValue>>,
    /// The answer as JSON, where a schema asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parsed: Option<Box<RawValue>>,
    /// The first fenced code block of the answer, where it was asked for and is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extracted: Option<Extracted>,
    /// Where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// The hash of the request that was answered, as its ledger entries have it; with a second question that of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<String>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Message {
    /// The turn that it is in a conversation.
    pub fn turn(&self) -> Turn {
        let content = self.content.clone().with_calls(&self.tool_calls);
        Turn { role: self.role.clone(), content, blocks: self.blocks.clone() }
    }

    /// Marks what is not ours: what the model said, and what the prompt handed on.
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
        self.extracted.as_ref().map_or_else(|| self.content.text(), |block| block.text.clone())
    }
}

/// A fenced code block of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Extracted {
    /// The first word behind the fence; null where none is.
    pub language: Option<String>,
    /// What is between the fences, without the last line feed.
    pub text: String,
}

/// What an answer cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Tokens read, those from a cache left out.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens written.
    #[serde(default)]
    pub output_tokens: u64,
    /// Tokens read from a cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Tokens written to a cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// US dollars; null where the model has no known price.
    #[serde(default)]
    pub cost_usd: Option<f64>,
}

/// A piece of a message that is still coming.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["text", "thinking"])))]
pub struct Delta {
    /// The words that are new.
    pub text: String,
    /// What the model thinks, which is none of its words; the text is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Delta {
    /// New words of a model.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), thinking: None, untrusted: vec!["/text".to_owned()] }
    }

    /// New thoughts of a model.
    pub fn of_thinking(text: &str) -> Self {
        Self { text: String::new(), thinking: Some(text.to_owned()), untrusted: vec!["/thinking".to_owned()] }
    }
}

impl Reply for Delta {
    fn text(&self) -> String {
        self.text.clone()
    }
}
