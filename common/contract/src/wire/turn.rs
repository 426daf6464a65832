//! One message of a conversation, and the blocks that it is made of.

use std::borrow::Cow;

use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Error, Result, raw};

/// One message of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turn {
    /// user or assistant.
    pub role: String,
    /// The content: a text, or blocks.
    pub content: Content,
}

impl Turn {
    /// A turn of one text.
    pub fn text(role: &str, text: &str) -> Self {
        Self { role: role.to_owned(), content: Content::Text(text.to_owned()) }
    }

    /// Its bytes, as far as a model counts them: an image counts by its area, and the most that one comes to stands for each.
    pub fn size(&self) -> Result<usize> {
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
            "additionalProperties": true,
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
struct ToolResultBlock<'a, C: ?Sized> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: &'a C,
    is_error: bool,
}

#[derive(Serialize)]
struct ImageBlock<'a> {
    r#type: &'static str,
    source: Base64Source<'a>,
}

#[derive(Serialize)]
struct Base64Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

impl Block {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::of(&TextBlock { r#type: "text", text })
    }

    /// A model's call of a tool. Providers take nothing but an object back.
    pub fn tool_use(id: &str, name: &str, input: &RawValue) -> Self {
        let input = if input.get().starts_with('{') {
            input
        } else {
            &RawValue::from_string("{}".to_owned()).unwrap_or_default()
        };
        Self::of(&ToolUseBlock { r#type: "tool_use", id, name, input })
    }

    /// What a tool answered.
    pub fn tool_result(tool_use_id: &str, content: &str, is_error: bool) -> Self {
        Self::of(&ToolResultBlock { r#type: "tool_result", tool_use_id, content, is_error })
    }

    /// What a tool answered, where that is more than text.
    pub fn tool_result_of(tool_use_id: &str, content: &Content, is_error: bool) -> Self {
        Self::of(&ToolResultBlock { r#type: "tool_result", tool_use_id, content, is_error })
    }

    /// An image, in base64.
    pub fn image(media_type: &str, data: &str) -> Self {
        Self::of(&ImageBlock { r#type: "image", source: Base64Source { r#type: "base64", media_type, data } })
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

    /// How many of its bytes are of images beyond what a model counts.
    fn uncounted(&self) -> Result<usize> {
        const IMAGE: usize = 1600 * 4;
        let view = self.view()?;
        if view.kind == "image" {
            return Ok(self.0.get().len().saturating_sub(IMAGE));
        }
        match view.content.map(|content| serde_json::from_str(content.get())) {
            Some(Ok(Content::Blocks(inner))) => inner.iter().map(Self::uncounted).sum(),
            _ => Ok(0),
        }
    }

    fn of(block: &impl Serialize) -> Self {
        Self(serde_json::value::to_raw_value(block).unwrap_or_default())
    }
}
