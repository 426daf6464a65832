//! The dialects of providers, as pure functions: the body of a [`Request`], and the [`Answer`] in a body or a stream of events.
//!
//! A provider's dialect is a file that implements [`WireApi`] and [`Decoder`]; nothing here opens a connection.

mod answer;
pub(crate) mod anthropic;
mod decoder;
pub(crate) mod embeddings;
pub(crate) mod gemini;
mod history;
pub(crate) mod json;
pub(crate) mod openai;
mod openai_message;
pub(crate) mod responses;
mod schema;
#[cfg(test)]
mod tests;
pub(crate) mod upstream;

use cp_common::Result;
use cp_common::wire::{Origin, ToolSpec, Turn, Usage, raw};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use self::answer::{Answer, Call, thoughts};
use self::answer::{Part, PartContent};
pub(crate) use self::decoder::{Decoder, Partial, Payload, decode_event, finish, parsed};
pub(crate) use self::history::{Lowered, count_but_text, lowered};
use self::json::Body;
pub(crate) use self::json::exact;
pub(crate) use self::upstream::{UpstreamError, bad_answer, cut, shortened};

/// What is shown of an answer that is still coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// The answer itself.
    Answer,
    /// What the model thinks.
    Thinking,
}

/// Shows text of an answer that is still coming.
pub(crate) type OnText<'a> = dyn FnMut(TextKind, &str) -> Result<()> + 'a;

/// How a provider takes many requests as one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchApi {
    /// In the body of one request: Anthropic's Message Batches.
    Inline,
    /// In a file that is uploaded first: `OpenAI`'s Batch API.
    File,
}

/// One request to a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The system text, empty for none.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<Turn>,
    /// What the model may call.
    pub tools: Vec<ToolSpec>,
    /// The model; empty leaves the choice to a backend that has a model of its own.
    pub model: String,
    /// `max_tokens`, `temperature`, `top_p`, `stop`, and whatever else the provider understands.
    pub params: Map<String, Value>,
    /// The JSON Schema that the answer must follow.
    pub schema: Option<Value>,
    /// Whether the answer is to come in pieces.
    pub stream: bool,
    /// Whether what the model thinks is shown, and so has to be asked for where that is a matter of the request.
    pub reasoning: bool,
    /// The position among the requests of this process, from 0.
    pub position: u64,
}

impl Request {
    /// The most tokens that the answer may have, by the name that a dialect has for it.
    pub(crate) fn most_tokens(&self) -> Option<u64> {
        let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        names.iter().find_map(|name| self.params.get(*name)?.as_u64())
    }

    /// The system text and the system turns as one text, for dialects that have no system turn; none when all are empty.
    fn whole_system(&self) -> Option<String> {
        let turns = self.messages.iter().filter(|turn| turn.role == "system").map(|turn| turn.content.text());
        let texts: Vec<String> =
            std::iter::once(self.system.clone()).chain(turns).filter(|text| !text.is_empty()).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// A parameter that is an object, to be added to; empty where none is given.
    fn object(&self, name: &str) -> Map<String, Value> {
        self.params.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// The tools in the form of a dialect, and those of the provider that the parameters name; none where there are none.
    fn tools<T: Serialize>(&self, own: impl IntoIterator<Item = T>) -> Result<Option<Vec<Box<RawValue>>>> {
        let theirs = self.params.get("tools").and_then(Value::as_array).into_iter().flatten();
        let tools = own.into_iter().map(|tool| raw(&tool)).chain(theirs.map(raw)).collect::<Result<Vec<_>>>()?;
        Ok(Some(tools).filter(|tools| !tools.is_empty()))
    }

    /// The turns that are not system turns.
    fn conversation_turns(&self) -> impl Iterator<Item = &Turn> {
        self.messages.iter().filter(|turn| turn.role != "system")
    }
}

/// One provider's dialect.
pub(crate) trait WireApi: Send + Sync {
    /// The base URL as the paths of this dialect follow it, without a slash at its end.
    fn base<'a>(&self, base: &'a str) -> &'a str {
        base
    }
    /// The path that base URLs of this dialect usually have.
    fn default_path(&self) -> &'static str {
        "/v1"
    }
    /// Where the list of models is, below the base URL.
    fn models_path(&self) -> &'static str {
        "/models"
    }
    /// Where the request goes, below the base URL.
    fn path(&self, request: &Request) -> String;
    /// How jobs are taken, where they are.
    fn batch_api(&self) -> Option<BatchApi> {
        None
    }
    /// The headers that carry the key and the version of the dialect.
    fn headers(&self, key: Option<&str>) -> Vec<(String, String)>;
    /// The body of the request that goes there.
    fn body(&self, request: &Request, there: &Origin) -> Result<Vec<u8>>;
    /// How its servers are asked for vectors; none where they have none.
    fn embeddings(&self) -> Option<embeddings::Format> {
        None
    }
    /// A decoder for an answer.
    fn decoder(&self) -> Box<dyn Decoder>;
}

/// Adds a tool to an object: its name, its description, and its JSON Schema under the name that the API has for it.
fn with_function(mut body: Body, tool: &ToolSpec, schema: &str) -> Result<Body> {
    body.set("name", &tool.name)?;
    body.set_some("description", Some(&tool.description).filter(|text| !text.is_empty()))?;
    body.set(schema, &tool.input_schema)?;
    Ok(body)
}

/// What may be one text or several, as a list.
fn list(value: &Value) -> Value {
    if value.is_string() { Value::Array(vec![value.clone()]) } else { value.clone() }
}

/// A member as text.
pub(crate) fn text_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// A member as a count; what is absent or null is 0.
pub(crate) fn count_of(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// What was used, where a provider counts the tokens from its cache among the prompt's.
fn with_cached(prompt: u64, output: u64, cached: u64) -> Usage {
    Usage {
        input_tokens: prompt.saturating_sub(cached),
        output_tokens: output,
        cache_read_tokens: cached,
        ..Usage::default()
    }
}

/// The header of a key that is a bearer token (RFC 6750).
fn bearer(key: Option<&str>) -> Vec<(String, String)> {
    key.map(|key| ("authorization".to_owned(), format!("Bearer {key}"))).into_iter().collect()
}

/// The source of an image or a document as a `data:` URL (RFC 2397), if its bytes are given.
fn data_url(source: &Value) -> Option<String> {
    let media = text_of(source, "media_type").unwrap_or("application/octet-stream");
    text_of(source, "data").map(|data| format!("data:{media};base64,{data}"))
}
