//! The result of a call: blocks of content, and what of them is text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of `tools/call`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// What the tool answered.
    #[serde(default)]
    pub content: Vec<Content>,
    /// The answer as data, where the tool has a schema of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// `complete`, which may be left out, or `input_required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<String>,
    /// What the server asks for before it can answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<Value>,
}

/// A block of content, also one of a type that is not known here.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// One that is known.
    Known(Block),
    /// Another.
    Other(Value),
}

/// A block of content.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, in base64.
    #[serde(rename_all = "camelCase")]
    Image {
        /// The bytes, in base64.
        data: String,
        /// What they are.
        mime_type: String,
    },
    /// A sound, in base64.
    #[serde(rename_all = "camelCase")]
    Audio {
        /// The bytes, in base64.
        data: String,
        /// What they are.
        mime_type: String,
    },
    /// A resource, with its text or its bytes.
    Resource {
        /// The resource.
        resource: Value,
    },
}

impl CallResult {
    /// What a tool answers with a text.
    pub fn of_text(text: impl Into<String>, is_error: bool) -> Self {
        Self { content: vec![Content::Known(Block::Text { text: text.into() })], is_error, ..Self::default() }
    }

    /// Whether the server asks for something first.
    pub fn is_input_required(&self) -> bool {
        self.result_type.as_deref() == Some("input_required")
    }

    /// The answer as text: the data of one that has no blocks, and a place holder for what is not text, which says of an image whether it
    /// is shown beside the text.
    pub fn text(&self, is_shown: impl Fn(&str, &str) -> bool) -> String {
        match &self.structured_content {
            Some(structured) if self.content.is_empty() => structured.to_string(),
            _ => self.content.iter().map(|content| content.text(&is_shown)).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The images of the answer: the type and the base64 of each.
    pub fn images(&self) -> impl Iterator<Item = (&str, &str)> {
        self.content.iter().filter_map(|content| match content {
            Content::Known(Block::Image { data, mime_type }) => Some((mime_type.as_str(), data.as_str())),
            Content::Known(Block::Text { .. } | Block::Audio { .. } | Block::Resource { .. }) | Content::Other(_) => {
                None
            }
        })
    }
}

impl Content {
    /// The block as text. Images and audio are named; what is not known is given as JSON.
    fn text(&self, is_shown: &impl Fn(&str, &str) -> bool) -> String {
        match self {
            Self::Known(Block::Text { text }) => text.clone(),
            Self::Known(Block::Image { mime_type, data }) if is_shown(mime_type, data) => {
                format!("[image, {mime_type}]")
            }
            Self::Known(Block::Image { mime_type, .. }) => format!("[image, {mime_type}: not shown]"),
            Self::Known(Block::Audio { mime_type, .. }) => format!("[audio, {mime_type}: not shown]"),
            Self::Known(Block::Resource { resource }) => {
                resource.get("text").and_then(Value::as_str).map_or_else(|| resource.to_string(), ToOwned::to_owned)
            }
            Self::Other(block) => block.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text_is_given_and_what_is_not_is_named() {
        let result: CallResult = serde_json::from_str(
            r#"{"content":[{"type":"text","text":"a","annotations":{}},{"type":"image","mimeType":"image/png","data":"AA=="},
                {"type":"resource","resource":{"uri":"x","text":"b"}},{"type":"resource_link","uri":"y"}]}"#,
        )
        .unwrap();
        let expected = "a\n[image, image/png: not shown]\nb\n{\"type\":\"resource_link\",\"uri\":\"y\"}";
        assert_eq!(result.text(|_, _| false), expected);
        assert!(result.text(|_, _| true).contains("[image, image/png]\n"));
        assert_eq!(result.images().collect::<Vec<_>>(), [("image/png", "AA==")]);
        let structured: CallResult = serde_json::from_str(r#"{"structuredContent":{"n":1}}"#).unwrap();
        assert_eq!((structured.text(|_, _| false).as_str(), structured.is_error), (r#"{"n":1}"#, false));
    }

    #[test]
    fn an_answer_is_read_back_as_it_was_written() {
        let line = serde_json::to_string(&CallResult::of_text("no", true)).unwrap();
        assert_eq!(line, r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#);
        let read: CallResult = serde_json::from_str(&line).unwrap();
        assert!(read.is_error && !read.is_input_required() && read.text(|_, _| false) == "no");
    }
}
