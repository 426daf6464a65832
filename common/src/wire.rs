//! What the records carry: the `data` of each kind that more than one program reads or writes. See cp-record(5).
//!
//! Readers ignore members they do not know. What a model, a tool or a person wrote stays the bytes it came in.

use std::borrow::Cow;

use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Code, Error, Result};
use crate::output::Reply;

/// Says where something was recorded: the proof of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The ledger's path.
    pub ledger: String,
    /// The entry's place in it, from 0.
    pub seq: u64,
    /// The entry's hash, `sha256:` and 64 hex digits.
    pub hash: String,
}

impl Reply for Receipt {
    fn text(&self) -> String {
        format!("{} {}", self.seq, self.hash)
    }
}

/// What to send to a model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["messages"])))]
pub struct Prompt {
    /// The agent that speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session that the history came from and the turns go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The system text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The id of the governed prompt that the system text is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    /// The conversation, oldest first.
    pub messages: Vec<Turn>,
    /// How many leading messages came from the session.
    #[serde(default)]
    pub history: usize,
    /// What the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The model to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How to ask it.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
    /// The row this was made from, for joining later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<Box<RawValue>>,
    /// What was left out or made unreadable on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<RawValue>>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Prompt {
    /// A prompt of one user text.
    pub fn of_text(text: &str) -> Self {
        Self { messages: vec![Turn::text("user", text)], ..Self::default() }
    }

    /// The turns that are not from the session: what `message.data.input` carries on.
    pub fn input(&self) -> &[Turn] {
        self.messages.get(self.history..).unwrap_or_default()
    }

    /// Checks what every reader relies on: some messages, and a history that is not longer than they are.
    pub fn checked(self) -> Result<Self> {
        if self.messages.is_empty() {
            return Err(
                Error::validation("data.messages is empty").hint("give at least one {\"role\":\"user\",\"content\":…}")
            );
        }
        if self.history > self.messages.len() {
            return Err(Error::validation(format!(
                "data.history is {}, but there are {} messages",
                self.history,
                self.messages.len()
            )));
        }
        Ok(self)
    }
}

impl Reply for Prompt {
    fn text(&self) -> String {
        let mut lines: Vec<String> = self.system.iter().map(|system| format!("system: {system}")).collect();
        lines.extend(self.messages.iter().map(|turn| format!("{}: {}", turn.role, turn.content.text())));
        lines.join("\n")
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turn {
    /// user or assistant.
    pub role: String,
    /// What was said.
    pub content: Content,
}

impl Turn {
    /// A turn of one text.
    pub fn text(role: &str, text: &str) -> Self {
        Self { role: role.to_owned(), content: Content::Text(text.to_owned()) }
    }
}

/// What was said: a text, or a list of blocks.
#[derive(Clone, Debug)]
pub enum Content {
    /// Words.
    Text(String),
    /// Texts, images, documents, tool calls and their results, in order.
    Blocks(Vec<Block>),
}

impl Content {
    /// The words alone.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => {
                let words =
                    blocks.iter().filter_map(|block| block.view().ok().and_then(|view| view.text.map(Cow::into_owned)));
                words.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Blocks(blocks) => blocks.is_empty(),
        }
    }

    /// The blocks, a text as one of them.
    pub fn blocks(&self) -> Vec<Block> {
        match self {
            Self::Text(text) if text.is_empty() => Vec::new(),
            Self::Text(text) => vec![Block::text(text)],
            Self::Blocks(blocks) => blocks.clone(),
        }
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Blocks(blocks) => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    /// By the first byte and not by trying both: an untagged enum would re-read numbers.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get()).map(Self::Text).map_err(de::Error::custom),
            Some(b'[') => serde_json::from_str(raw.get()).map(Self::Blocks).map_err(de::Error::custom),
            _ => Err(de::Error::custom("content must be a string or a list of blocks")),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Content {
    fn schema_name() -> Cow<'static, str> {
        "Content".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let blocks = generator.subschema_for::<Vec<Block>>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, blocks] })
    }
}

/// A block of content, in the bytes it came in: providers add members that must survive the round trip.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Block(Box<RawValue>);

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Block {
    fn schema_name() -> Cow<'static, str> {
        "Block".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "required": ["type"],
            "properties": { "type": { "enum": ["text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"] } }
        })
    }
}

/// A look into a [`Block`].
#[derive(Clone, Debug, Deserialize)]
pub struct BlockView<'a> {
    /// text, image, document, `tool_use` or `tool_result`.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// The words of a text.
    #[serde(default, borrow)]
    pub text: Option<Cow<'a, str>>,
    /// The id of a tool call.
    #[serde(default, borrow)]
    pub id: Option<Cow<'a, str>>,
    /// The name of the tool.
    #[serde(default, borrow)]
    pub name: Option<Cow<'a, str>>,
    /// Its arguments.
    #[serde(default, borrow)]
    pub input: Option<&'a RawValue>,
    /// The call that a result answers.
    #[serde(default, borrow)]
    pub tool_use_id: Option<Cow<'a, str>>,
    /// The result: a string or blocks.
    #[serde(default, borrow)]
    pub content: Option<&'a RawValue>,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// Where an image or document is: `{type:"base64", media_type, data}`.
    #[serde(default, borrow)]
    pub source: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct TextBlock<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct ToolUseBlock<'a> {
    r#type: &'static str,
    id: &'a str,
    name: &'a str,
    input: &'a RawValue,
}

#[derive(Serialize)]
struct ToolResultBlock<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: &'a str,
    is_error: bool,
}

impl Block {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::of(&TextBlock { r#type: "text", text })
    }

    /// A model's call of a tool.
    pub fn tool_use(id: &str, name: &str, input: &RawValue) -> Self {
        Self::of(&ToolUseBlock { r#type: "tool_use", id, name, input })
    }

    /// What a tool answered.
    pub fn tool_result(tool_use_id: &str, content: &str, is_error: bool) -> Self {
        Self::of(&ToolResultBlock { r#type: "tool_result", tool_use_id, content, is_error })
    }

    /// A block that came as JSON.
    pub fn from_raw(raw: Box<RawValue>) -> Self {
        Self(raw)
    }

    /// Its bytes.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// A look into it.
    pub fn view(&self) -> Result<BlockView<'_>> {
        serde_json::from_str(self.0.get()).map_err(|e| Error::validation(format!("a content block is wrong: {e}")))
    }

    fn of(block: &impl Serialize) -> Self {
        Self(serde_json::value::to_raw_value(block).unwrap_or_default())
    }
}

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

/// How to ask a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Params {
    /// The most tokens to answer with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// How freely to choose words, 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of likely words to choose from, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Words that end the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

impl Params {
    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What came back from a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["content", "tool_calls", "input", "parsed"])))]
pub struct Message {
    /// The provider's id of it.
    pub id: String,
    /// assistant.
    pub role: String,
    /// What was said.
    pub content: Content,
    /// The tools that the model calls, complete.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// The turns that this answers and that no session has yet.
    #[serde(default)]
    pub input: Vec<Turn>,
    /// The model that answered.
    pub model: String,
    /// How it was asked.
    pub backend: String,
    /// `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, refusal or `model_context_window_exceeded`.
    pub stop_reason: String,
    /// What it cost.
    pub usage: Usage,
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
    /// Where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Reply for Message {
    fn text(&self) -> String {
        self.content.text()
    }
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
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["text"])))]
pub struct Delta {
    /// The words that are new.
    pub text: String,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

impl Delta {
    /// New words of a model.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), untrusted: vec!["/text".to_owned()] }
    }
}

impl Reply for Delta {
    fn text(&self) -> String {
        self.text.clone()
    }
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
    /// Its arguments, a JSON object.
    pub input: Box<RawValue>,
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
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["content"])))]
pub struct ToolResult {
    /// The call that this answers.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// What it said, for the model.
    pub content: String,
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

impl Reply for ToolResult {
    fn text(&self) -> String {
        self.content.clone()
    }
}

/// What a command did.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["stdout", "stderr"])))]
pub struct ExecResult {
    /// The words it was started with.
    pub argv: Vec<String>,
    /// What it wrote on standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// What it wrote on standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
    /// Its exit status, where it left by itself.
    pub return_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ran into the deadline.
    pub timed_out: bool,
    /// Whether output was left out.
    pub truncated: bool,
    /// How long it took.
    pub duration_ms: u64,
    /// The file that was executed.
    pub exe: Executable,
    /// The layers of the sandbox that were in force.
    pub enforcement: Box<RawValue>,
    /// More about streams that were cut or are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Box<RawValue>>,
    /// Where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// JSON Pointers to what is not ours.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

/// A file that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Executable {
    /// Its path, absolute and without links.
    pub path: String,
    /// The hash of its bytes, `sha256:` and 64 hex digits.
    pub sha256: String,
}

impl Reply for ExecResult {
    fn text(&self) -> String {
        [self.stdout.trim_end(), self.stderr.trim_end()]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Encodes a value that is known to be encodable as raw JSON.
pub fn raw(value: &impl Serialize) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value).map_err(|e| Error::new(Code::Unknown, format!("encoding JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_round_trips_with_its_numbers_and_unknown_block_members() {
        let text = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"x"}},{"type":"tool_use","id":"1","name":"f","input":{"n":12345678901234567890123456789,"e":1e2}}]}],"history":0}"#;
        let prompt: Prompt = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&prompt).unwrap(), text);
        assert_eq!(prompt.messages[0].content.text(), "a");
    }

    #[test]
    fn a_history_longer_than_the_messages_is_refused() {
        let prompt: Prompt =
            serde_json::from_str(r#"{"messages":[{"role":"user","content":"a"}],"history":2}"#).unwrap();
        assert!(prompt.checked().is_err());
        assert!(serde_json::from_str::<Prompt>(r#"{"messages":[{"role":"user","content":7}]}"#).is_err());
    }
}
