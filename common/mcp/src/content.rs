//! The result of a tool call: its content blocks, and their text and images.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The result of `tools/call`. Content and structured content keep their bytes, because a large integer must not become a float.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// The content blocks, of known and unknown types.
    #[serde(default)]
    pub content: Vec<Box<RawValue>>,
    /// The result as data, if the tool has an output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Box<RawValue>>,
    /// True if the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// `complete`, which may be left out, or `input_required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<String>,
    /// The requests that the client must answer before the server can continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<Value>,
}

/// An image or audio block: its media type, and its bytes in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// The media type, such as `image/png`.
    pub media_type: String,
    /// The bytes in base64.
    pub data: String,
    /// True for an image, false for audio.
    pub is_image: bool,
}

/// A content block of a known type.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        #[serde(borrow)]
        text: Cow<'a, str>,
    },
    #[serde(rename_all = "camelCase")]
    Image { data: String, mime_type: String },
    #[serde(rename_all = "camelCase")]
    Audio { data: String, mime_type: String },
}

/// The text of an embedded resource.
#[derive(Deserialize)]
struct Resource<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    resource: &'a RawValue,
}

impl CallResult {
    /// A result with one text block.
    pub fn of_text(text: &str, is_error: bool) -> Self {
        let block = serde_json::value::to_raw_value(&Block::Text { text: text.into() });
        Self { content: block.into_iter().collect(), is_error, ..Self::default() }
    }

    /// True if the server needs an answer from the client first.
    pub fn is_input_required(&self) -> bool {
        self.result_type.as_deref() == Some("input_required")
    }

    /// The result as text: the structured content if there are no blocks, and a placeholder for each block that is not text. The
    /// placeholder of an image tells if the image is shown next to the text.
    pub fn text(&self, is_shown: impl Fn(&str, &str) -> bool) -> String {
        match &self.structured_content {
            Some(structured) if self.content.is_empty() => structured.get().to_owned(),
            _ => self.content.iter().map(|block| text_of(block, &is_shown)).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The images and audio of the result.
    pub fn media(&self) -> impl Iterator<Item = Media> {
        self.content.iter().filter_map(|block| match serde_json::from_str(block.get()).ok()? {
            Block::Text { .. } => None,
            Block::Image { data, mime_type } => Some(Media { media_type: mime_type, data, is_image: true }),
            Block::Audio { data, mime_type } => Some(Media { media_type: mime_type, data, is_image: false }),
        })
    }
}

/// A block as text. Images and audio become placeholders; a block of an unknown type is its JSON.
fn text_of(block: &RawValue, is_shown: &impl Fn(&str, &str) -> bool) -> String {
    match serde_json::from_str(block.get()) {
        Ok(Block::Text { text }) => text.into_owned(),
        Ok(Block::Image { mime_type, data }) if is_shown(&mime_type, &data) => format!("[image, {mime_type}]"),
        Ok(Block::Image { mime_type, .. }) => format!("[image, {mime_type}: not shown]"),
        Ok(Block::Audio { mime_type, .. }) => format!("[audio, {mime_type}: not shown]"),
        Err(_) => match serde_json::from_str::<Resource<'_>>(block.get()) {
            Ok(Resource { kind: "resource", resource }) => {
                let text = serde_json::from_str::<Value>(resource.get()).ok();
                let text = text.and_then(|mut value| value.get_mut("text").map(Value::take));
                text.and_then(|text| text.as_str().map(ToOwned::to_owned)).unwrap_or_else(|| resource.get().to_owned())
            }
            _ => block.get().to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_result_names_blocks_that_are_not_text() {
        let result: CallResult = serde_json::from_str(
            r#"{"content":[{"type":"text","text":"a","annotations":{}},{"type":"image","mimeType":"image/png","data":"AA=="},
                {"type":"resource","resource":{"uri":"x","text":"b"}},{"type":"resource_link","uri":"y"}]}"#,
        )
        .unwrap();
        let expected = "a\n[image, image/png: not shown]\nb\n{\"type\":\"resource_link\",\"uri\":\"y\"}";
        assert_eq!(result.text(|_, _| false), expected);
        assert!(result.text(|_, _| true).contains("[image, image/png]\n"));
        let image = Media { media_type: "image/png".into(), data: "AA==".into(), is_image: true };
        assert_eq!(result.media().collect::<Vec<_>>(), [image]);
        let structured: CallResult = serde_json::from_str(r#"{"structuredContent":{"n":1}}"#).unwrap();
        assert_eq!((structured.text(|_, _| false).as_str(), structured.is_error), (r#"{"n":1}"#, false));
    }

    #[test]
    fn large_integers_of_result_keep_their_digits() {
        let result: CallResult = serde_json::from_str(
            r#"{"content":[{"type":"x","n":12345678901234567890123},{"type":"resource","resource":{"n":1e400}}]}"#,
        )
        .unwrap();
        assert_eq!(result.text(|_, _| false), "{\"type\":\"x\",\"n\":12345678901234567890123}\n{\"n\":1e400}");
        let structured: CallResult =
            serde_json::from_str(r#"{"structuredContent":{"n":12345678901234567890123}}"#).unwrap();
        assert_eq!(structured.text(|_, _| false), r#"{"n":12345678901234567890123}"#);
    }

    #[test]
    fn result_of_text_is_read_back_as_it_was_written() {
        let line = serde_json::to_string(&CallResult::of_text("no", true)).unwrap();
        assert_eq!(line, r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#);
        let read: CallResult = serde_json::from_str(&line).unwrap();
        assert!(read.is_error && !read.is_input_required() && read.text(|_, _| false) == "no");
    }
}
