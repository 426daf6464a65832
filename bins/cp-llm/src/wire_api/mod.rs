//! The wire APIs of providers, as pure functions: they encode a [`Request`], and decode an [`Answer`] from a body or
//! from events.
//!
//! Each API is a file with a [`WireApi`] and a [`Decoder`]. Connections are opened by [`crate::backend`].
//! Configuration and records call an API a `dialect`.

mod answer;
pub(crate) mod anthropic;
pub(crate) mod ends;
pub(crate) mod gemini;
mod history;
pub(crate) mod json;
pub(crate) mod openai;
mod openai_message;
pub(crate) mod responses;
#[cfg(test)]
mod tests;
pub(crate) mod upstream;

use cp_common::wire::{Origin, ToolSpec, Turn, Usage, raw};
use cp_common::{Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use self::answer::{Answer, Decoder, Partial, Payload, decode, decode_event, finish, parsed, thoughts};
use self::answer::{Part, PartContent};
pub(crate) use self::history::{Lowered, lowered};
use self::json::Body;
pub(crate) use self::json::exact;
use self::upstream::restarted;
pub(crate) use self::upstream::{UpstreamError, bad_answer, cut, shortened, words_of_text};

/// The kind of streamed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// The answer itself.
    Answer,
    /// The model's reasoning.
    Thinking,
}

/// Receives streamed text.
pub(crate) type OnText<'a> = dyn FnMut(TextKind, &str) -> Result<()> + 'a;

/// The batch API of a provider.
#[derive(Clone, Copy)]
pub(crate) struct BatchApi {
    /// The requests are uploaded as a file first.
    pub has_file: bool,
    /// The path of all batches, and the page where a person sees them.
    pub path: &'static str,
    pub console: &'static str,
}

/// One request to a model. A program gets it as a `prompt` record.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Request {
    /// The system text; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<Turn>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The model; empty to let the backend choose.
    pub model: String,
    /// Parameters such as `max_tokens`, `temperature`, `top_p` and `stop`, and those that only the provider knows.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The JSON Schema of the answer.
    #[serde(skip)]
    pub schema: Option<Value>,
    /// True to stream the answer.
    #[serde(skip)]
    pub stream: bool,
    /// True to ask for the model's reasoning.
    #[serde(skip)]
    pub reasoning: bool,
    /// The number of this request in the process, from 0.
    #[serde(skip)]
    pub position: u64,
    /// The idempotency key of this request. Retries have the same one, a request with another body has another.
    #[serde(skip)]
    pub id: Option<String>,
}

impl Request {
    /// The limit of output tokens, under any of its names.
    pub(crate) fn most_tokens(&self) -> Option<u64> {
        let names = ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"];
        names.iter().find_map(|name| self.params.get(*name)?.as_u64())
    }

    /// The system text and all system turns as one text; `None` if all are empty.
    fn whole_system(&self) -> Option<String> {
        let turns = self.messages.iter().filter(|turn| turn.role == "system").map(|turn| turn.content.text());
        let texts: Vec<String> =
            std::iter::once(self.system.clone()).chain(turns).filter(|text| !text.is_empty()).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// A copy of a parameter that is an object; empty if it is absent.
    fn object(&self, name: &str) -> Map<String, Value> {
        self.params.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// Encoded tools, and tools of the provider from the parameters; `None` if there are none.
    fn tools<T: Serialize>(&self, own: impl Iterator<Item = Result<T>>) -> Result<Option<Vec<Box<RawValue>>>> {
        let theirs = self.params.get("tools").and_then(Value::as_array).into_iter().flatten();
        let tools = own.map(|tool| raw(&tool?)).chain(theirs.map(raw)).collect::<Result<Vec<_>>>()?;
        Ok(Some(tools).filter(|tools| !tools.is_empty()))
    }

    /// All turns except system turns.
    fn conversation_turns(&self) -> impl Iterator<Item = &Turn> {
        self.messages.iter().filter(|turn| turn.role != "system")
    }
}

/// The wire API of a provider.
pub(crate) struct WireApi {
    /// The usual path of base URLs.
    pub default_path: &'static str,
    /// The path of the list of models.
    pub models_path: &'static str,
    /// The header of the key, and the text before the key.
    pub key_header: (&'static str, &'static str),
    /// The header with the version of the API, if it needs one.
    pub version: Option<(&'static str, &'static str)>,
    /// The batch API, if there is one.
    pub batch_api: Option<BatchApi>,
    /// The path of a request.
    pub path: fn(&Request) -> String,
    /// Encodes a request to this server.
    pub body: fn(&Request, &Origin) -> Result<Vec<u8>>,
    /// A decoder of one answer.
    pub decoder: fn() -> Box<dyn Decoder>,
}

impl WireApi {
    /// The headers for the key and the version of the API.
    pub(crate) fn headers(&self, key: Option<&str>) -> Vec<(String, String)> {
        let (name, before) = self.key_header;
        let version = self.version.map(|(name, version)| (name.to_owned(), version.to_owned()));
        version.into_iter().chain(key.map(|key| (name.to_owned(), format!("{before}{key}")))).collect()
    }
}

/// Encodes a tool: members of the API, its name, its description, and its JSON Schema under the name that the API has
/// for it.
fn function(tool: &ToolSpec, schema: &str, own: &[(&str, Value)]) -> Result<Box<RawValue>> {
    let mut body = Body::default();
    own.iter().try_for_each(|(name, value)| body.set(name, value))?;
    body.set("name", &tool.name)?;
    body.set_some("description", Some(&tool.description).filter(|text| !text.is_empty()))?;
    body.set(schema, &tool.input_schema)?;
    body.into_raw()
}

/// Makes a list of one text or several.
fn list(value: &Value) -> Value {
    if value.is_string() { Value::Array(vec![value.clone()]) } else { value.clone() }
}

/// A member as text.
pub(crate) fn text_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// A member as a count; 0 if it is absent or null.
pub(crate) fn count_of(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// A count of a usage; 0 if it is absent or null. A count that is not readable, such as -1, is `None`: a usage with a
/// wrong count would be an answer with a wrong price.
fn count_in(usage: &Value, path: &str) -> Option<u64> {
    usage.pointer(path).filter(|count| !count.is_null()).map_or(Some(0), Value::as_u64)
}

/// The usage of a provider that includes cached tokens in the prompt's count, by the paths of its counts.
fn tokens(usage: &Value, prompt: &str, output: &[&str], cached: &str) -> Option<Usage> {
    let cached = count_in(usage, cached)?;
    Some(Usage {
        input_tokens: count_in(usage, prompt)?.saturating_sub(cached),
        output_tokens: output.iter().map(|path| count_in(usage, path)).sum::<Option<_>>()?,
        cache_read_tokens: cached,
        ..Usage::default()
    })
}

/// What a block of text, image or document has to send.
enum Media<'a> {
    Text(&'a Value),
    /// The type of the block, and the URL of its source.
    Url(&'a str, &'a Value),
    /// The type of the block, and its source, which has bytes.
    Bytes(&'a str, &'a Value),
}

/// Reads a block of text, image or document. Refuses a source that would be sent as null.
fn media<'a>(block: &'a Value, api: &str) -> Result<Media<'a>> {
    let (kind, source) = (text_of(block, "type").unwrap_or("(none)"), &block["source"]);
    let has = |member: &str| source[member].is_string();
    Ok(match (kind, text_of(source, "type").unwrap_or("(none)")) {
        ("text", _) => Media::Text(&block["text"]),
        ("document", "text") if has("data") => Media::Text(&source["data"]),
        ("image" | "document", "url") if has("url") => Media::Url(kind, &source["url"]),
        ("image" | "document", "base64") if has("media_type") && has("data") => Media::Bytes(kind, source),
        (_, name) => {
            let message =
                format!("{kind}: a source of type {name} with these members cannot be sent to a {api} server");
            let hint = "give `base64` with `media_type` and `data`, or `url` with `url`";
            return Err(Error::validation(message).hint(hint));
        }
    })
}

/// The file name of a document: its title, or a name for its media type.
fn file_name(block: &Value) -> String {
    let media = text_of(&block["source"], "media_type").unwrap_or_default();
    let extension = match media.split(';').next().unwrap_or_default().trim() {
        "text/plain" => "txt",
        "text/markdown" => "md",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation" => "pptx",
        // The subtype is the extension of PDF, JSON, CSV, HTML and RTF.
        other => other.split_once('/').map_or("bin", |(_, subtype)| subtype),
    };
    let is_plain = extension.len() < 8 && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let named = || format!("document.{}", if is_plain { extension } else { "bin" });
    text_of(block, "title").map_or_else(named, str::to_owned)
}

/// The source of an image or a document as a `data:` URL (RFC 2397), if it has bytes.
fn data_url(source: &Value) -> Option<String> {
    let media = text_of(source, "media_type").unwrap_or("application/octet-stream");
    text_of(source, "data").map(|data| format!("data:{media};base64,{data}"))
}
