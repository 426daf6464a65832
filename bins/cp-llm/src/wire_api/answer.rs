//! One whole answer of a model, in no provider's dialect: its parts in order, and the plain view of them.

use cp_common::Result;
use cp_common::wire::{Block, Content, Origin, Usage, raw, record};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::Body;
use super::upstream::bad_answer;
use super::{OnText, TextKind};

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The provider's id of the message.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The plain view: the words, with the images among them.
    pub content: Content,
    /// The tool calls that are complete.
    pub calls: Vec<Call>,
    /// The answer as it came, where that is more than the content and the calls.
    pub blocks: Vec<Block>,
    /// Why it ended: `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, `refusal`, `model_context_window_exceeded`.
    pub stop: String,
    /// What it used, where the provider reports it; the cost is not known here.
    pub usage: Option<Usage>,
}

/// A tool call, whole.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The id that the result must carry.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, an object, in the bytes that the model wrote; a string where it wrote no object.
    pub input: Box<RawValue>,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub content: PartContent,
    /// The provider's own block, where what is said is not all of it.
    pub raw: Option<Box<RawValue>>,
}

/// What a part says to everyone.
#[derive(Clone, Debug)]
pub(crate) enum PartContent {
    /// Words, and what they are taken from.
    Text(String, Vec<Value>),
    /// What the model thought, as far as the provider shows it.
    Thinking(String),
    Call(Call),
    /// The source of an image.
    Image(Value),
    /// Something that a tool of the provider did, by its name.
    ServerTool(String),
    /// What we have no name for, by the provider's.
    Other(String),
}

impl Answer {
    /// The answer of a backend that gives a text.
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

    /// The answer that these parts are.
    pub(super) fn of_parts(parts: Vec<Part>, here: &Origin) -> Result<Self> {
        let mut answer = Self { content: content(&parts)?, ..Self::of_text(String::new()) };
        // A text and its calls in this order are what a turn is made of where it has no blocks.
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

    /// Shows an answer that came whole: what the model thought, then its words.
    pub(crate) fn show(&self, show: &mut OnText<'_>) -> Result<()> {
        thoughts(&self.blocks).try_for_each(|thought| show(TextKind::Thinking, &thought))?;
        let text = self.content.text();
        if text.is_empty() { Ok(()) } else { show(TextKind::Answer, &text) }
    }

    /// The answer, unless there is nothing in it.
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

/// What the model thought, as the blocks of an answer tell it.
pub(crate) fn thoughts(blocks: &[Block]) -> impl Iterator<Item = String> {
    #[derive(Deserialize)]
    struct Thought {
        r#type: String,
        thinking: Option<String>,
    }
    let thoughts = blocks.iter().filter_map(|block| record::read::<Thought>(block.raw()).ok());
    thoughts.filter(|thought| thought.r#type == "thinking").filter_map(|thought| thought.thinking)
}

/// The words as one text; as blocks where images are among them.
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

    /// The block of a message.
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
