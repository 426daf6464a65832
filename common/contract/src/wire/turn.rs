//! One message of a conversation, and its content.

use std::borrow::Cow;

use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Block, Result, ToolCall, raw};

/// One message of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turn {
    /// user or assistant.
    pub role: String,
    /// The content: a text, or blocks.
    pub content: Content,
    /// An answer as its provider gave it, where that is more than its content: what is sent in place of the content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
}

impl Turn {
    /// A turn of one text.
    pub fn text(role: &str, text: &str) -> Self {
        Self::of(role, Content::Text(text.to_owned()))
    }

    /// A turn that is its content.
    pub fn of(role: &str, content: Content) -> Self {
        Self { role: role.to_owned(), content, blocks: Vec::new() }
    }

    /// Its bytes, as far as a model counts them: an image counts by its area, and the most that one comes to stands for each. Blocks of
    /// an answer go in place of the content, each as it came or as its plain members, and not as both.
    pub fn size(&self) -> Result<usize> {
        if !self.blocks.is_empty() {
            return self.blocks.iter().map(Block::sent).sum();
        }
        let saved = self.content.blocks().iter().map(Block::uncounted).sum::<Result<usize>>()?;
        Ok(raw(self)?.get().len().saturating_sub(saved))
    }

    /// Its text. A block without text is given as its kind, with its name and input or its content.
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

    /// Whether a person or a program asks here, and no tool answers: what a conversation can begin with.
    pub fn is_question(&self) -> bool {
        let answers = |block: &Block| block.view().is_ok_and(|view| view.kind == "tool_result");
        self.role == "user" && !self.content.blocks().iter().any(answers)
    }
}

/// Content: a text, or a list of blocks.
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

    /// With the tool calls as blocks, where there are any that it lacks: a later request must repeat the calls.
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

    /// Whether it is empty.
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
