//! The dialects of providers, as pure functions: the body of a [`Request`], and the [`Answer`] in a body or a stream of events.
//!
//! A provider's dialect is a file that implements [`Dialect`] and [`Decoder`]; nothing here opens a connection.

mod answer;
pub(crate) mod anthropic;
mod body;
#[cfg(test)]
mod deltas;
pub(crate) mod embeddings;
pub(crate) mod gemini;
mod gemini_parameters;
mod history;
pub(crate) mod loose;
pub(crate) mod openai;
mod openai_message;
mod partial;
mod request;
pub(crate) mod responses;
mod schema;
#[cfg(test)]
mod splits;
mod upstream;
#[cfg(test)]
mod widening;

use cp_common::Result;
use cp_common::wire::{Origin, Usage};
use serde_json::Value;

pub(crate) use self::answer::{Answer, Call, thoughts};
use self::answer::{Part, Said};
pub(crate) use self::history::{Lowered, count_but_text, lowered};
pub(crate) use self::partial::{Partial, exact, finish};
pub(crate) use self::request::Request;
pub(crate) use self::upstream::{UpstreamError, bad_answer, cut, shortened};
use crate::http::sse::Event;

/// What is shown of an answer that is still coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Its words.
    Words,
    /// What the model thinks.
    Thinking,
}

/// Shows text of an answer that is still coming.
pub(crate) type Show<'a> = dyn FnMut(Shown, &str) -> Result<()> + 'a;

/// How a provider takes many requests as one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobApi {
    /// In the body of one request: Anthropic's Message Batches.
    Inline,
    /// In a file that is uploaded first: `OpenAI`'s Batch API.
    File,
}

/// One provider's dialect.
pub(crate) trait Dialect: Send + Sync {
    /// The base URL as the paths of this dialect follow it, without a slash at its end.
    fn base<'a>(&self, base: &'a str) -> &'a str {
        base
    }
    /// The path that base URLs of this dialect usually have.
    fn usual_path(&self) -> &'static str {
        "/v1"
    }
    /// Where the list of models is, below the base URL.
    fn models_path(&self) -> &'static str {
        "/models"
    }
    /// Where the request goes, below the base URL.
    fn path(&self, request: &Request) -> String;
    /// How jobs are taken, where they are.
    fn jobs(&self) -> Option<JobApi> {
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

/// What came of an answer: a whole body, or an event of a stream.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub value: &'a Value,
    /// Its bytes, where their spelling matters.
    pub bytes: &'a [u8],
    /// Whether halves of characters stand in the value as placeholders.
    pub halves: bool,
}

/// Puts an answer together.
pub(crate) trait Decoder {
    /// Takes an answer that came whole.
    fn whole(&mut self, body: &Piece<'_>) -> Result<()>;
    /// Takes an event, shows the text it brings, and returns whether it was the last.
    fn event(&mut self, event: &Piece<'_>, show: &mut Show<'_>) -> Result<bool>;
    /// What has come so far.
    fn partial(&mut self) -> &mut Partial;
    /// The parts that have come, in order. At the limit a call that is not complete is left out.
    fn parts(&mut self, at_limit: bool) -> Result<Vec<Part>>;
}

/// Feeds an event to a decoder: parses it, raises the error it may be, and passes the rest on.
pub(crate) fn feed(decoder: &mut dyn Decoder, event: &Event, show: &mut Show<'_>) -> Result<bool> {
    let data = event.data.trim_ascii();
    if data == b"[DONE]" {
        decoder.partial().ended = true;
        return Ok(true);
    }
    if data.is_empty() {
        return Ok(false);
    }
    let loose = parsed(data)?;
    if let Some(error) = UpstreamError::find(&loose.value, event.name == "error") {
        return Err(error.into_error(200));
    }
    decoder.event(&Piece { value: &loose.value, bytes: data, halves: loose.halves }, show)
}

/// Parses what a server sent, telling bad bytes from bad JSON.
pub(crate) fn parsed(bytes: &[u8]) -> Result<loose::Loose> {
    if std::str::from_utf8(bytes).is_err() {
        return Err(bad_answer("invalid_utf8", "the answer is not valid UTF-8"));
    }
    loose::parse(bytes).map_err(|_| match bytes.trim_ascii_start().first() {
        None => bad_answer("empty", "the answer is empty"),
        Some(b'<') => bad_answer("html", "the answer is a page of markup, not JSON")
            .hint("check the base URL, and whether a proxy or a login page answers in its place"),
        Some(_) => bad_answer("invalid_json", "the answer is not valid JSON"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_not_json_are_told_apart() {
        for (bytes, reason) in [
            (&b"<html>"[..], "html"),
            (b"", "empty"),
            (b"{\"a\":", "invalid_json"),
            (b"{\"a\":\"\xFF\"}", "invalid_utf8"),
        ] {
            assert_eq!(parsed(bytes).err().unwrap().details()["reason"], reason);
        }
    }
}
