//! Tools in the list of a server, the parameters of a call, and the content of its result.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// True if a tool may have this name: letters, digits, `_`, `.` and `-`.
pub fn is_tool_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// A tool, as its server describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its description.
    #[serde(default, deserialize_with = "given")]
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Option<Box<RawValue>>,
    /// The server's hints about its effects.
    #[serde(default, deserialize_with = "given")]
    pub annotations: Annotations,
}

/// The hints of a server about the effects of a tool, which are not verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// The tool changes nothing.
    pub read_only_hint: Option<bool>,
    /// The tool may destroy data.
    pub destructive_hint: Option<bool>,
    /// A second call has no further effect.
    pub idempotent_hint: Option<bool>,
}

impl Annotations {
    /// True if the tool is annotated as read-only.
    pub fn is_read_only(self) -> bool {
        self.read_only_hint == Some(true)
    }

    /// True if the tool is annotated as destructive. The protocol's default is true, but then nearly every tool would
    /// be destructive, so a missing annotation counts as false.
    pub fn is_destructive(self) -> bool {
        self.destructive_hint == Some(true) && !self.is_read_only()
    }

    /// True if the tool is annotated as idempotent or read-only.
    pub fn is_idempotent(self) -> bool {
        self.is_read_only() || self.idempotent_hint == Some(true)
    }
}

/// Reads null as a missing member, because some servers write it.
fn given<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// The result of `tools/call`. Content and structured content keep their bytes, because a large integer must not become
/// a float.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallResult {
    /// The content blocks, of known and unknown types.
    pub content: Vec<Box<RawValue>>,
    /// The result as data, if the tool has an output schema.
    pub structured_content: Option<Box<RawValue>>,
    /// True if the tool failed.
    pub is_error: bool,
    /// `complete`, which may be left out, or `input_required`.
    pub result_type: Option<String>,
    /// The requests that the client must answer before the server can continue.
    pub input_requests: Option<Value>,
}

/// A content block: a text, an image or audio in base64, or an embedded resource.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// `text`, `image`, `audio` or `resource`; there are others.
    #[serde(rename = "type")]
    pub kind: String,
    /// The media type, such as `image/png`.
    #[serde(default)]
    pub mime_type: String,
    /// The bytes in base64.
    #[serde(default)]
    pub data: String,
    text: Option<String>,
    resource: Option<Box<RawValue>>,
}

impl CallResult {
    /// True if the server needs an answer from the client first.
    pub fn is_input_required(&self) -> bool {
        self.result_type.as_deref() == Some("input_required")
    }

    /// The methods of the requests that it sends to the client.
    pub fn methods(&self) -> impl Iterator<Item = &str> {
        let requests = self.input_requests.as_ref().and_then(Value::as_object).into_iter().flatten();
        requests.map(|(_, request)| request["method"].as_str().unwrap_or_default())
    }

    /// The result as text: the structured content if there are no blocks, and a placeholder for each block that is not
    /// text. The placeholder of an image tells if the image is shown next to the text.
    pub fn text(&self, is_shown: impl Fn(&str, &str) -> bool) -> String {
        match &self.structured_content {
            Some(structured) if self.content.is_empty() => structured.get().to_owned(),
            _ => self.content.iter().map(|block| text_of(block, &is_shown)).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The images and audio of the result.
    pub fn media(&self) -> impl Iterator<Item = Block> {
        let blocks = self.content.iter().filter_map(|block| serde_json::from_str::<Block>(block.get()).ok());
        blocks.filter(|block| ["image", "audio"].contains(&block.kind.as_str()))
    }
}

/// A block as text. Images and audio become placeholders; a block of an unknown type is its JSON.
fn text_of(block: &RawValue, is_shown: &impl Fn(&str, &str) -> bool) -> String {
    let whole = || block.get().to_owned();
    let Ok(Block { kind, mime_type, data, text, resource }) = serde_json::from_str(block.get()) else { return whole() };
    match (kind.as_str(), text, resource) {
        ("text", Some(text), _) => text,
        ("image", ..) if is_shown(&mime_type, &data) => format!("[image, {mime_type}]"),
        ("image" | "audio", ..) => format!("[{kind}, {mime_type}: not shown]"),
        ("resource", _, Some(resource)) => {
            let value: Value = serde_json::from_str(resource.get()).unwrap_or_default();
            value["text"].as_str().unwrap_or_else(|| resource.get()).to_owned()
        }
        _ => whole(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_read_as_missing() {
        let tool: Tool = serde_json::from_str(r#"{"name":"a","description":null,"annotations":null}"#).unwrap();
        assert_eq!((tool.description.as_str(), tool.annotations), ("", Annotations::default()));
    }

    #[test]
    fn missing_annotation_is_not_destructive() {
        let hints = |text: &str| serde_json::from_str::<Annotations>(text).unwrap();
        assert!(!hints("{}").is_destructive() && !hints("{}").is_read_only() && !hints("{}").is_idempotent());
        assert!(hints(r#"{"destructiveHint":true,"openWorldHint":true}"#).is_destructive());
        let both = hints(r#"{"destructiveHint":true,"readOnlyHint":true}"#);
        assert!(!both.is_destructive() && both.is_idempotent());
    }

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
        let media: Vec<_> = result.media().map(|media| (media.kind, media.mime_type, media.data)).collect();
        assert_eq!(media, [("image".to_owned(), "image/png".to_owned(), "AA==".to_owned())]);
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
}
