//! Content blocks: text, image, document, tool call, tool result, thinking.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::{Content, Error, Result};

/// A content block with its original bytes, because providers add members that must survive the round trip.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["type"], "properties" = {
    "type": { "enum": [
        "text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool", "other"
    ] },
    "origin": {
        "type": "object",
        "required": ["dialect", "endpoint"],
        "properties": { "dialect": { "type": "string" }, "endpoint": { "type": "string" } }
    },
    "raw": { "type": "object" },
    "redacted": { "type": "boolean" }
})))]
pub struct Block(#[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, serde_json::Value>"))] Box<RawValue>);

/// The decoded members of a [`Block`].
#[derive(Clone, Debug, Deserialize)]
pub struct BlockView<'a> {
    /// text, image, document, `tool_use`, `tool_result`, thinking, `server_tool` or other.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// The text of a text block.
    #[serde(default, borrow)]
    pub text: Option<Cow<'a, str>>,
    /// The id of a tool call.
    #[serde(default, borrow)]
    pub id: Option<Cow<'a, str>>,
    /// The name of the tool.
    #[serde(default, borrow)]
    pub name: Option<Cow<'a, str>>,
    /// The arguments of the call.
    #[serde(default, borrow)]
    pub input: Option<&'a RawValue>,
    /// The id of the call that a result answers.
    #[serde(default, borrow)]
    pub tool_use_id: Option<Cow<'a, str>>,
    /// The result: a string or blocks.
    #[serde(default, borrow)]
    pub content: Option<&'a RawValue>,
    /// True if the tool failed.
    #[serde(default)]
    pub is_error: bool,
    /// Source of an image or document: `{type:"base64", media_type, data}` or `{type:"url", url}`.
    #[serde(default, borrow)]
    pub source: Option<&'a RawValue>,
    /// Origin of a block of an answer.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// The provider's own JSON, if the members above do not represent all of it.
    #[serde(default, borrow)]
    pub raw: Option<&'a RawValue>,
    /// True if a secret was redacted from the block; the provider's own JSON is then dropped.
    #[serde(default)]
    pub redacted: bool,
}

/// Origin of a block of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The base URL of the server, else the name of the backend.
    pub endpoint: String,
    /// The dialect of the block's `raw`.
    pub dialect: String,
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

impl Block {
    /// Makes a text block.
    pub fn text(text: &str) -> Self {
        Self::of(&json!({ "type": "text", "text": text }))
    }

    /// Makes a `tool_use` block. Input that is not an object becomes `{}`, because providers accept only objects.
    pub fn tool_use(id: &str, name: &str, input: &RawValue) -> Self {
        let input = if input.get().starts_with('{') {
            input
        } else {
            &RawValue::from_string("{}".to_owned()).unwrap_or_default()
        };
        Self::of(&ToolUseBlock { r#type: "tool_use", id, name, input })
    }

    /// Makes a `tool_result` block with text.
    pub fn tool_result(tool_use_id: &str, content: &str, is_error: bool) -> Self {
        Self::of(&ToolResultBlock { r#type: "tool_result", tool_use_id, content, is_error })
    }

    /// Makes a `tool_result` block with any content.
    pub fn tool_result_of(tool_use_id: &str, content: &Content, is_error: bool) -> Self {
        Self::of(&ToolResultBlock { r#type: "tool_result", tool_use_id, content, is_error })
    }

    /// Makes an image block from base64.
    pub fn image(media_type: &str, data: &str) -> Self {
        Self::data("image", media_type, data)
    }

    fn data(kind: &str, media_type: &str, data: &str) -> Self {
        Self::of(&json!({ "type": kind, "source": { "type": "base64", "media_type": media_type, "data": data } }))
    }

    /// Makes a block that links to `url`: a document if its path ends in `.pdf`, else an image.
    pub fn linked(url: &str) -> Self {
        let path = Path::new(url.split(['?', '#']).next().unwrap_or_default());
        let is_document = path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("pdf"));
        let kind = if is_document { "document" } else { "image" };
        Self::of(&json!({"type": kind, "source": {"type": "url", "url": url}}))
    }

    /// Wraps raw JSON.
    pub fn from_raw(raw: Box<RawValue>) -> Self {
        Self(raw)
    }

    /// Returns the block marked as redacted and without `raw`, because the provider's signature no longer matches the
    /// content.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let Ok(mut members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(self.0.get()) else {
            return self.clone();
        };
        members.remove("raw");
        members.insert("redacted".to_owned(), RawValue::TRUE);
        Self::of(&members)
    }

    /// Returns the block with a title: the file name of a document.
    #[must_use]
    pub fn titled(&self, title: &str) -> Self {
        let mut members: serde_json::Value = serde_json::from_str(self.0.get()).unwrap_or_default();
        members["title"] = title.into();
        Self::of(&members)
    }

    /// Returns the JSON text.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// Decodes the known members.
    pub fn view(&self) -> Result<BlockView<'_>> {
        serde_json::from_str(self.0.get()).map_err(|e| Error::validation(format!("a content block is wrong: {e}")))
    }

    /// Returns the number of bytes that are sent to a model.
    pub(super) fn sent(&self) -> Result<usize> {
        Ok(self.view()?.raw.unwrap_or(&self.0).get().len())
    }

    /// Returns the number of image bytes beyond the token count that a model charges for an image.
    pub(super) fn uncounted(&self) -> Result<usize> {
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

/// The largest image that models accept, in bytes.
const IMAGE_LIMIT: u64 = 5 << 20;
/// The largest document, in bytes.
pub const DOCUMENT_LIMIT: u64 = 32 << 20;

impl Block {
    /// Returns the block of an image or a document and its media type, recognized by its bytes; `None` for other bytes.
    pub fn of_media(bytes: &[u8]) -> Result<Option<(Self, &'static str)>> {
        let Some((media_type, limit)) = media_type(bytes) else { return Ok(None) };
        if bytes.len() as u64 > limit {
            let message = format!("too large: {} bytes of {media_type}, the limit is {limit}", bytes.len());
            return Err(Error::validation(message).with("bytes", bytes.len()).with("limit", limit));
        }
        let kind = if media_type == "application/pdf" { "document" } else { "image" };
        Ok(Some((Self::data(kind, media_type, &BASE64.encode(bytes)), media_type)))
    }
}

fn media_type(bytes: &[u8]) -> Option<(&'static str, u64)> {
    Some(match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => ("image/png", IMAGE_LIMIT),
        [0xff, 0xd8, 0xff, ..] => ("image/jpeg", IMAGE_LIMIT),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => ("image/gif", IMAGE_LIMIT),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ("image/webp", IMAGE_LIMIT),
        [b'%', b'P', b'D', b'F', b'-', ..] => ("application/pdf", DOCUMENT_LIMIT),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_block_keeps_members_and_exact_numbers() {
        let block: Block = serde_json::from_str(
            r#"{"type":"tool_use","id":"1","name":"f","input":{"n":12345678901234567890123},"origin":{"endpoint":"e","dialect":"gemini"},"raw":{"a":1}}"#,
        )
        .unwrap();
        assert_eq!(
            block.redacted().raw().get(),
            r#"{"id":"1","input":{"n":12345678901234567890123},"name":"f","origin":{"endpoint":"e","dialect":"gemini"},"redacted":true,"type":"tool_use"}"#
        );
        let view = block.view().unwrap();
        assert_eq!((view.raw.unwrap().get(), view.origin.unwrap().dialect.as_str()), (r#"{"a":1}"#, "gemini"));
        assert!(block.redacted().view().unwrap().redacted);
        assert_eq!(block.redacted().redacted().raw().get(), block.redacted().raw().get());
    }
}
