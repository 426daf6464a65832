//! The result of a call, as text for the model.

use serde::Deserialize;
use serde_json::Value;

use super::Outcome;

/// The images that providers take.
const KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The longest that they take, in characters of base64.
const LARGEST: usize = 5 << 20;

/// The result of `tools/call`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Called {
    #[serde(default)]
    content: Vec<Value>,
    structured_content: Option<Value>,
    #[serde(default)]
    is_error: bool,
    /// Absent: complete.
    result_type: Option<String>,
    input_requests: Option<Value>,
}

impl Called {
    /// What the call came to, for the model.
    pub(super) fn outcome(self) -> Outcome {
        if self.result_type.as_deref() == Some("input_required") {
            return Outcome::InputRequired(self.input_requests.unwrap_or_default());
        }
        let mut texts: Vec<String> = self.content.iter().map(text_of).collect();
        if let (true, Some(structured)) = (texts.is_empty(), self.structured_content) {
            texts.push(structured.to_string());
        }
        let images: Vec<(String, String)> = self.content.iter().filter_map(image_of).collect();
        let (text, is_error) = (texts.join("\n"), self.is_error);
        if images.is_empty() { Outcome::Answer { text, is_error } } else { Outcome::Shown { text, images, is_error } }
    }
}

/// The image that a block is, where models take its kind and its size.
fn image_of(block: &Value) -> Option<(String, String)> {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let (media, data) = (text("mimeType")?, text("data")?);
    let is_taken = KINDS.contains(&media) && (1..=LARGEST).contains(&data.len());
    (text("type") == Some("image") && is_taken).then(|| (media.to_owned(), data.to_owned()))
}

/// A block of content as text. Images and audio are named; other blocks are given as JSON.
fn text_of(block: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match block.get("type").and_then(Value::as_str) {
        Some("text") => block.get("text").and_then(text).unwrap_or_default(),
        Some("resource") => block.pointer("/resource/text").and_then(text).unwrap_or_else(|| block.to_string()),
        Some(kind @ ("image" | "audio")) => {
            let media = block.get("mimeType").and_then(Value::as_str).unwrap_or("unknown type");
            if image_of(block).is_some() {
                format!("[{kind}, {media}]")
            } else {
                format!("[{kind}, {media}: not shown]")
            }
        }
        _ => block.to_string(),
    }
}
