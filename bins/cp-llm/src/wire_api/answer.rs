//! The answer of a model, independent of the wire API: its parts in order, and their plain view.

use cp_common::Result;
use cp_common::wire::{Block, Content, Origin, Usage, raw, record};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::Body;
use super::upstream::bad_answer;
use super::{OnText, TextKind};

/// A complete answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The id of the message at the provider.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The plain view: text and images.
    pub content: Content,
    /// The complete tool calls.
    pub calls: Vec<Call>,
    /// All parts of the answer, if the content and the calls are not enough to restore it.
    pub blocks: Vec<Block>,
    /// The stop reason: `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, `refusal`, `model_context_window_exceeded`.
    pub stop: String,
    /// The usage without its cost, if the provider reports it.
    pub usage: Option<Usage>,
}

/// A complete tool call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The id, which the result repeats.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments in the bytes of the model; a string if they are not an object.
    pub input: Box<RawValue>,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub content: PartContent,
    /// The block of the provider, if the content does not have all of it.
    pub raw: Option<Box<RawValue>>,
}

/// The content of a part, independent of the provider.
#[derive(Clone, Debug)]
pub(crate) enum PartContent {
    /// Text and its citations.
    Text(String, Vec<Value>),
    /// Reasoning, as far as the provider sends it.
    Thinking(String),
    Call(Call),
    /// The source of an image.
    Image(Value),
    /// The use of a tool of the provider, by name.
    ServerTool(String),
    /// Another kind of part, by the provider's name.
    Other(String),
}

impl Answer {
    /// An answer that is only a text.
    pub(crate) fn of_text(text: String) -> Self {
        Self {
            id: None,
            model: None,
            content: Content::Text(text),
            calls: Vec::new(),
            blocks: Vec::new(),
            stop: String::new(),
            usage: None,
        }
    }

    /// Makes an answer from its parts.
    pub(super) fn of_parts(parts: Vec<Part>, here: &Origin) -> Result<Self> {
        let mut answer = Self { content: content(&parts)?, ..Self::of_text(String::new()) };
        // A turn without blocks is a text and then tool calls.
        let says_all = |(at, part): (usize, &Part)| match &part.content {
            PartContent::Text(_, citations) => at == 0 && part.raw.is_none() && citations.is_empty(),
            PartContent::Call(_) => part.raw.is_none(),
            PartContent::Thinking(_) | PartContent::Image(_) | PartContent::ServerTool(_) | PartContent::Other(_) => {
                false
            }
        };
        if !parts.iter().enumerate().all(says_all) {
            answer.blocks = parts.iter().map(|part| part.block(here)).collect::<Result<_>>()?;
        }
        answer.calls = parts.into_iter().filter_map(Part::into_call).collect();
        Ok(answer)
    }

    /// Passes on the reasoning and the text of a whole answer.
    pub(crate) fn show(&self, show: &mut OnText<'_>) -> Result<()> {
        thoughts(&self.blocks).try_for_each(|thought| show(TextKind::Thinking, &thought))?;
        let text = self.content.text();
        if text.is_empty() { Ok(()) } else { show(TextKind::Answer, &text) }
    }

    /// Completes the stop reason. Fails if the answer is empty.
    pub(crate) fn checked(mut self) -> Result<Self> {
        if self.stop.is_empty() || (self.stop == "end_turn" && !self.calls.is_empty()) {
            // Some servers report `stop` after tool calls, or no reason at all.
            if self.calls.is_empty() { "end_turn" } else { "tool_use" }.clone_into(&mut self.stop);
        }
        if self.content.is_empty() && self.calls.is_empty() && self.blocks.is_empty() && self.stop == "end_turn" {
            return Err(bad_answer("empty", "the answer is empty"));
        }
        Ok(self)
    }
}

/// The reasoning in the blocks of an answer.
pub(crate) fn thoughts(blocks: &[Block]) -> impl Iterator<Item = String> {
    #[derive(Deserialize)]
    struct Thought {
        r#type: String,
        thinking: Option<String>,
    }
    let thoughts = blocks.iter().filter_map(|block| record::read::<Thought>(block.raw()).ok());
    thoughts.filter(|thought| thought.r#type == "thinking").filter_map(|thought| thought.thinking)
}

/// The text, or blocks if there are images.
fn content(parts: &[Part]) -> Result<Content> {
    let mut blocks = Vec::new();
    let mut text = String::new();
    for part in parts {
        match &part.content {
            PartContent::Text(words, _) => text.push_str(words),
            PartContent::Image(source) => {
                blocks.extend(Some(std::mem::take(&mut text)).filter(|text| !text.is_empty()).map(|t| Block::text(&t)));
                blocks.push(Block::from_raw(raw(&serde_json::json!({"type": "image", "source": source}))?));
            }
            PartContent::Thinking(_) | PartContent::Call(_) | PartContent::ServerTool(_) | PartContent::Other(_) => {}
        }
    }
    if blocks.is_empty() {
        return Ok(Content::Text(text));
    }
    blocks.extend(Some(text).filter(|text| !text.is_empty()).map(|text| Block::text(&text)));
    Ok(Content::Blocks(blocks))
}

impl Part {
    fn into_call(self) -> Option<Call> {
        match self.content {
            PartContent::Call(call) => Some(call),
            PartContent::Text(..)
            | PartContent::Thinking(_)
            | PartContent::Image(_)
            | PartContent::ServerTool(_)
            | PartContent::Other(_) => None,
        }
    }

    /// Encodes the block of a message.
    fn block(&self, origin: &Origin) -> Result<Block> {
        let mut body = Body::default();
        let (kind, words) = match &self.content {
            PartContent::Text(text, _) => ("text", Some(("text", text))),
            PartContent::Thinking(text) => ("thinking", Some(("thinking", text))),
            PartContent::Call(_) => ("tool_use", None),
            PartContent::Image(_) => ("image", None),
            PartContent::ServerTool(name) => ("server_tool", Some(("name", name))),
            PartContent::Other(name) => ("other", Some(("name", name))),
        };
        body.set("type", kind)?;
        if let Some((name, text)) = words {
            body.set(name, text)?;
        }
        match &self.content {
            PartContent::Text(_, citations) if !citations.is_empty() => body.set("citations", citations)?,
            PartContent::Call(Call { id, name, input }) => {
                body.set("id", id)?;
                body.set("name", name)?;
                body.set("input", input)?;
            }
            PartContent::Image(source) => body.set("source", source)?,
            PartContent::Text(..) | PartContent::Thinking(_) | PartContent::ServerTool(_) | PartContent::Other(_) => {}
        }
        body.set("origin", origin)?;
        body.set_some("raw", self.raw.as_ref())?;
        body.into_raw().map(Block::from_raw)
    }
}
