//! The answer of a model, independent of the wire API: its parts in order, and their plain view.
//!
//! A [`Decoder`] assembles it from the events of a stream or from a whole body. Streams that break off and streams that
//! end are read from the same [`Partial`].

use std::borrow::Cow;

use cp_common::keys::{hex, random};
use cp_common::wire::{Block, Content, Origin, ToolCall, Usage, raw, record};
use cp_common::{Error, Result};
use cp_http::sse::Event;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::json::{Body, mended};
use super::{OnText, TextKind, UpstreamError, bad_answer, cut, ends, shortened, text_of};

/// A complete answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The id of the message at the provider.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The plain view: text and images.
    pub content: Content,
    /// The complete tool calls.
    pub calls: Vec<ToolCall>,
    /// All parts of the answer, if the content and the calls are not enough to restore it.
    pub blocks: Vec<Block>,
    /// The stop reason: `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, `refusal`,
    /// `model_context_window_exceeded`.
    pub stop: String,
    /// The usage without its cost, if the provider reports it.
    pub usage: Option<Usage>,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub content: PartContent,
    /// The block of the provider, if the content does not have all of it.
    pub raw: Option<Box<RawValue>>,
}

/// The content of a part, independent of the provider.
#[derive(Clone, Debug)]
pub(crate) enum PartContent {
    /// Text and its citations.
    Text(String, Vec<Value>),
    /// Reasoning, as far as the provider sends it.
    Thinking(String),
    Call(ToolCall),
    /// The source of an image.
    Image(Value),
    /// The use of a tool of the provider, by name.
    ServerTool(String),
    /// Another kind of part, by the provider's name.
    Other(String),
}

impl Answer {
    /// An answer that is only a text.
    pub(crate) fn of_text(text: String) -> Self {
        Self { content: Content::Text(text), ..Self::default() }
    }

    /// Makes an answer from its parts.
    pub(super) fn of_parts(parts: Vec<Part>, here: &Origin) -> Result<Self> {
        let mut answer = Self { content: content(&parts)?, ..Self::default() };
        // A turn without blocks is a text and then tool calls.
        let says_all = |(at, part): (usize, &Part)| match &part.content {
            PartContent::Text(_, citations) => at == 0 && part.raw.is_none() && citations.is_empty(),
            PartContent::Call(_) => part.raw.is_none(),
            _ => false,
        };
        if !parts.iter().enumerate().all(says_all) {
            answer.blocks = parts.iter().map(|part| part.block(here)).collect::<Result<_>>()?;
        }
        answer.calls = parts.into_iter().filter_map(Part::into_call).collect();
        Ok(answer)
    }

    /// Passes on the reasoning and the text of a whole answer.
    pub(crate) fn show(&self, show: &mut OnText<'_>) -> Result<()> {
        thoughts(&self.blocks).try_for_each(|thought| show(TextKind::Thinking, &thought))?;
        let text = self.content.text();
        if text.is_empty() { Ok(()) } else { show(TextKind::Answer, &text) }
    }

    /// True if the answer has nothing but reasoning.
    pub(crate) fn is_empty(&self) -> bool {
        let is_thought = |block: &Block| block.view().is_ok_and(|view| view.kind == "thinking");
        self.content.is_empty() && self.calls.is_empty() && self.blocks.iter().all(is_thought)
    }

    /// Corrects the stop reason of an answer with tool calls, after which some servers report `stop`. Fails if the answer
    /// is empty and has no stop reason; with one the model had nothing to say.
    pub(crate) fn checked(mut self) -> Result<Self> {
        if self.is_empty() && self.stop.is_empty() {
            return Err(bad_answer("empty", "the answer is empty"));
        }
        if self.stop == "end_turn" && !self.calls.is_empty() {
            "tool_use".clone_into(&mut self.stop);
        }
        Ok(self)
    }
}

/// The reasoning in the blocks of an answer.
pub(crate) fn thoughts(blocks: &[Block]) -> impl Iterator<Item = String> {
    #[derive(Deserialize)]
    struct Thought {
        r#type: String,
        thinking: Option<String>,
    }
    let thoughts = blocks.iter().filter_map(|block| record::read::<Thought>(block.raw()).ok());
    thoughts.filter(|thought| thought.r#type == "thinking").filter_map(|thought| thought.thinking)
}

/// The text, or blocks if there are images.
fn content(parts: &[Part]) -> Result<Content> {
    let mut blocks = Vec::new();
    let mut text = String::new();
    for part in parts {
        match &part.content {
            PartContent::Text(words, _) => text.push_str(words),
            PartContent::Image(source) => {
                blocks.extend(Some(std::mem::take(&mut text)).filter(|text| !text.is_empty()).map(|t| Block::text(&t)));
                blocks.push(Block::from_raw(raw(&serde_json::json!({"type": "image", "source": source}))?));
            }
            _ => {}
        }
    }
    if blocks.is_empty() {
        return Ok(Content::Text(text));
    }
    blocks.extend(Some(text).filter(|text| !text.is_empty()).map(|text| Block::text(&text)));
    Ok(Content::Blocks(blocks))
}

impl Part {
    /// A tool call with the arguments that the model wrote, and the block of the provider, if that has more.
    pub(super) fn call(id: String, name: &str, input: &str, raw: Option<Box<RawValue>>) -> Self {
        let call = ToolCall { id, name: name.to_owned(), input: arguments(input), ..ToolCall::default() };
        // The server would refuse arguments that are not an object.
        let raw = raw.filter(|_| is_object(&call.input));
        Self { content: PartContent::Call(call), raw }
    }

    /// Adds text or reasoning to the last part, if it is of this kind and has no block, else as a new part.
    pub(super) fn grow(parts: &mut Vec<Self>, kind: TextKind, text: &str) {
        match (parts.last_mut(), kind) {
            (Some(Self { content: PartContent::Text(last, _), raw: None }), TextKind::Answer)
            | (Some(Self { content: PartContent::Thinking(last), raw: None }), TextKind::Thinking) => {
                last.push_str(text);
            }
            _ if text.is_empty() => {}
            _ => parts.push(Self { content: PartContent::text(kind, text), raw: None }),
        }
    }

    fn into_call(self) -> Option<ToolCall> {
        if let PartContent::Call(call) = self.content { Some(call) } else { None }
    }

    /// Encodes the block of a message.
    fn block(&self, origin: &Origin) -> Result<Block> {
        let mut body = Body::default();
        let kind = |body: &mut Body, kind, name, value| body.set("type", kind).and_then(|()| body.set(name, value));
        match &self.content {
            PartContent::Text(text, citations) => {
                kind(&mut body, "text", "text", text)?;
                body.set_some("citations", Some(citations).filter(|citations| !citations.is_empty()))?;
            }
            PartContent::Thinking(text) => kind(&mut body, "thinking", "thinking", text)?,
            PartContent::ServerTool(name) => kind(&mut body, "server_tool", "name", name)?,
            PartContent::Other(name) => kind(&mut body, "other", "name", name)?,
            PartContent::Call(ToolCall { id, name, input, .. }) => {
                kind(&mut body, "tool_use", "id", id)?;
                body.set("name", name)?;
                body.set("input", input)?;
            }
            PartContent::Image(source) => {
                body.set("type", "image")?;
                body.set("source", source)?;
            }
        }
        body.set("origin", origin)?;
        body.set_some("raw", self.raw.as_ref())?;
        body.into_raw().map(Block::from_raw)
    }
}

impl PartContent {
    /// A text of this kind.
    pub(super) fn text(kind: TextKind, text: &str) -> Self {
        match kind {
            TextKind::Answer => Self::Text(text.to_owned(), Vec::new()),
            TextKind::Thinking => Self::Thinking(text.to_owned()),
        }
    }
}

/// A parsed body or event.
pub(crate) struct Payload<'a> {
    pub value: Value,
    /// The bytes, to keep the spelling of numbers.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> Payload<'a> {
    /// Parses JSON of a server, in a stream with the half of a character that it holds. The error distinguishes invalid
    /// UTF-8, an empty body, markup and invalid JSON.
    pub(crate) fn parse(bytes: &'a [u8], held: Option<&mut u32>) -> Result<Self> {
        // Some servers begin JSON with a byte order mark.
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        if std::str::from_utf8(bytes).is_err() {
            return Err(bad_answer("invalid_utf8", "the answer is not valid UTF-8"));
        }
        let bytes = mended(bytes, held);
        let value = serde_json::from_slice(&bytes).map_err(|_| match bytes.trim_ascii_start().first() {
            None => bad_answer("empty", "the answer is empty"),
            Some(b'<') => bad_answer("html", "the answer is a page of markup, not JSON")
                .hint("check the base URL, and whether a proxy or a login page answers in its place"),
            Some(_) => bad_answer("invalid_json", "the answer is not valid JSON"),
        })?;
        Ok(Self { value, bytes })
    }
}

/// Assembles an answer.
pub(crate) trait Decoder {
    /// Decodes an event, or a whole body. Returns true after the last event.
    fn event(&mut self, event: &Payload<'_>, partial: &mut Partial) -> Result<bool>;
    /// Decodes `[DONE]`, which ends the streams of Chat Completions only.
    fn done(&self, _: &mut Partial) {}
    /// Takes the parts so far.
    fn parts(&mut self) -> Result<Vec<Part>>;
}

/// Parses an event, decodes it, and passes on its text. Fails if it reports an error.
pub(crate) fn decode_event(
    decoder: &mut dyn Decoder,
    partial: &mut Partial,
    event: &Event,
    show: &mut OnText<'_>,
) -> Result<bool> {
    let data = event.data.trim_ascii();
    if data == b"[DONE]" {
        decoder.done(partial);
        return Ok(true);
    }
    // Some gateways send their comments as data.
    if data.is_empty() || data.starts_with(b":") {
        return Ok(false);
    }
    let quoted = |error: Error| error.with("upstream_message", shortened(&String::from_utf8_lossy(data)));
    let payload = Payload::parse(data, Some(&mut partial.half)).map_err(quoted)?;
    let (text, thinking) = (partial.text.len(), partial.thinking.len());
    let outcome = decode(decoder, partial, &payload, event.name == "error");
    for (kind, new) in [(TextKind::Thinking, &partial.thinking[thinking..]), (TextKind::Answer, &partial.text[text..])]
    {
        if !new.is_empty() {
            show(kind, new)?;
        }
    }
    outcome
}

/// Decodes an event or a whole body. Fails if it reports an error, or with `is_error` is one.
pub(crate) fn decode(
    decoder: &mut dyn Decoder,
    partial: &mut Partial,
    payload: &Payload<'_>,
    is_error: bool,
) -> Result<bool> {
    // An answer that failed may have text, and usage that is paid for.
    let outcome = decoder.event(payload, partial);
    UpstreamError::find(&payload.value, is_error).map_or(outcome, |error| Err(error.into_error(200)))
}

/// Parses JSON of a server.
pub(crate) fn parsed(bytes: &[u8]) -> Result<Value> {
    Payload::parse(bytes, None).map(|payload| payload.value)
}

/// The members of an answer that all APIs have, as far as they have arrived.
#[derive(Default)]
pub(crate) struct Partial {
    /// The id of the provider.
    pub id: Option<String>,
    /// The model that answers.
    pub model: Option<String>,
    /// The text so far.
    pub text: String,
    /// The reasoning so far.
    pub thinking: String,
    /// The first half of a character whose second half has not arrived, or 0.
    half: u32,
    /// The stop reason.
    pub stop: Option<String>,
    /// The usage.
    pub usage: Option<Usage>,
    /// True after the terminal event of the API, which some servers do not send after the stop reason.
    pub ended: bool,
}

impl Partial {
    /// Adds text of this kind.
    pub(super) fn add(&mut self, kind: TextKind, text: &str) {
        match kind {
            TextKind::Answer => self.text.push_str(text),
            TextKind::Thinking => self.thinking.push_str(text),
        }
    }

    /// Sets the id and the model from these members, unless they are set.
    pub(super) fn identify(&mut self, from: &Value, id: &str, model: &str) {
        for (name, known) in [(id, &mut self.id), (model, &mut self.model)] {
            if known.is_none() {
                *known = text_of(from, name).filter(|text| !text.is_empty()).map(str::to_owned);
            }
        }
    }
}

/// Makes the answer from a decoder. Fails if the answer is incomplete.
pub(crate) fn finish(decoder: &mut dyn Decoder, mut partial: Partial, here: &Origin) -> Result<Answer> {
    partial.stop = partial.stop.map(|stop| ends::named(&here.dialect, &stop));
    let reached_limit = matches!(partial.stop.as_deref(), Some("max_tokens" | "model_context_window_exceeded"));
    if !partial.ended && partial.stop.is_none() {
        let nothing = partial.id.is_none() && decoder.parts().is_ok_and(|parts| parts.is_empty());
        return Err(if nothing { bad_answer("empty", "the answer is empty") } else { cut() });
    }
    let mut parts = decoder.parts()?;
    // A tool call that was cut off at the token limit is dropped.
    let is_cut = |part: &Part| matches!(&part.content, PartContent::Call(call) if !is_object(&call.input));
    parts.retain(|part| !(reached_limit && is_cut(part)));
    let Partial { id, model, stop, usage, .. } = partial;
    Answer { id, model, stop: stop.unwrap_or_default(), usage, ..Answer::of_parts(parts, here)? }.checked()
}

/// Parses the arguments of a tool call. Text that is not an object becomes a string: no tool accepts it, and the model
/// gets an error.
pub(super) fn arguments(text: &str) -> Box<RawValue> {
    // Some servers send `null` for no arguments, or an object that is encoded twice.
    let inner = serde_json::from_str::<String>(text).ok().filter(|inner| inner.trim_start().starts_with('{'));
    let text = inner.as_deref().unwrap_or(text);
    let text = if ["", "null"].contains(&text.trim()) { "{}" } else { text };
    // The bytes of the model are kept, except for halves of characters.
    let bytes = mended(text.as_bytes(), None);
    let is_object = serde_json::from_slice::<Value>(&bytes).is_ok_and(|value| value.is_object());
    let kept = is_object.then(|| String::from_utf8_lossy(&bytes).trim().replace(['\n', '\r'], " "));
    let raw = kept.and_then(|kept| RawValue::from_string(kept).ok());
    raw.or_else(|| to_raw_value(text).ok()).unwrap_or_default()
}

/// True for arguments that are an object.
pub(super) fn is_object(input: &RawValue) -> bool {
    input.get().starts_with('{')
}

/// Makes a random id for a tool call without one. It must be unique in the whole conversation.
pub(super) fn fresh_id() -> String {
    // Without random bytes the id has zeros.
    format!("call_{}", hex(&random::<8>().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_null_or_encoded_twice_are_object() {
        for (text, input) in [
            ("", "{}"),
            (" null ", "{}"),
            (r#"{"a":1e2}"#, r#"{"a":1e2}"#),
            (r#""{\"a\":1e2}""#, r#"{"a":1e2}"#),
            ("[]", r#""[]""#),
            (r#""x""#, r#""\"x\"""#),
        ] {
            assert_eq!(arguments(text).get(), input, "{text}");
        }
    }
}
