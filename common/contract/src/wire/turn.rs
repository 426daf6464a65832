//! A message of a conversation, and its content.

use std::borrow::Cow;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Block, Result, ToolCall, raw};

/// A message of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turn {
    /// user or assistant.
    pub role: String,
    /// The content: a text, or blocks.
    pub content: Content,
    /// The answer as its provider sent it, if that is more than `content`; the blocks are then sent in place of the
    /// content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
}

impl Turn {
    /// Makes a turn of one text.
    pub fn text(role: &str, text: &str) -> Self {
        Self::of(role, Content::Text(text.to_owned()))
    }

    /// Makes a turn of the given content.
    pub fn of(role: &str, content: Content) -> Self {
        Self { role: role.to_owned(), content, blocks: Vec::new() }
    }

    /// Returns the number of bytes that a model counts as tokens. Models charge for an image by its area, so each image
    /// counts as the maximum. If there are blocks of an answer, they count in place of the content.
    pub fn size(&self) -> Result<usize> {
        if !self.blocks.is_empty() {
            return self.blocks.iter().map(Block::sent).sum();
        }
        let saved = self.content.blocks().iter().map(Block::uncounted).sum::<Result<usize>>()?;
        Ok(raw(self)?.get().len().saturating_sub(saved))
    }

    /// Returns the text. A block without text is represented by its kind, with its name and input or its content.
    pub fn plain_text(&self) -> String {
        let blocks = self.content.blocks();
        let lines = blocks.iter().filter_map(|block| {
            let view = block.view().ok()?;
            Some(match (view.text, view.name) {
                (Some(text), _) => text.into_owned(),
                (None, Some(name)) => format!("[{} {}{}]", view.kind, name, view.input.map_or("", |input| input.get())),
                (None, None) => format!("[{}{}]", view.kind, view.content.map_or("", |content| content.get())),
            })
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// True if the turn is from a user or a program and not a tool result, so that a conversation can begin with it.
    pub fn is_question(&self) -> bool {
        let answers = |block: &Block| block.view().is_ok_and(|view| view.kind == "tool_result");
        self.role == "user" && !self.content.blocks().iter().any(answers)
    }
}

/// Content: a text, or a list of blocks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Content {
    /// A text.
    Text(String),
    /// Texts, images, documents, tool calls and tool results, in order.
    Blocks(Vec<Block>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Content {
    /// Returns only the text.
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

    /// Adds the tool calls that are missing as blocks, because a later request must repeat them.
    #[must_use]
    pub fn with_calls(self, calls: &[ToolCall]) -> Self {
        let blocks = self.blocks();
        let has = |id: &str| {
            let is_it = |block: &Block| {
                block.view().is_ok_and(|view| view.kind == "tool_use" && view.id.as_deref() == Some(id))
            };
            blocks.iter().any(is_it)
        };
        let absent: Vec<&ToolCall> = calls.iter().filter(|call| !has(&call.id)).collect();
        if absent.is_empty() {
            return self;
        }
        let absent = absent.into_iter().map(|call| Block::tool_use(&call.id, &call.name, &call.input));
        Self::Blocks(blocks.iter().cloned().chain(absent).collect())
    }

    /// True if there is no content.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Blocks(blocks) => blocks.is_empty(),
        }
    }

    /// Returns the blocks; a text becomes one block.
    pub fn blocks(&self) -> Vec<Block> {
        match self {
            Self::Text(text) if text.is_empty() => Vec::new(),
            Self::Text(text) => vec![Block::text(text)],
            Self::Blocks(blocks) => blocks.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    /// Selects the variant by the first byte, because an untagged enum would re-parse numbers.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get()).map(Self::Text).map_err(de::Error::custom),
            Some(b'[') => serde_json::from_str(raw.get()).map(Self::Blocks).map_err(de::Error::custom),
            _ => Err(de::Error::custom("content must be a string or a list of blocks")),
        }
    }
}
