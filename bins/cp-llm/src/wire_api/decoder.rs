//! Decoders of answers: events of a stream, or a whole body, become the parts of an [`Answer`]. Streams that break off and streams that end are read
//! from the same [`Partial`].

use cp_common::Result;
use cp_common::keys::{hex, random};
use cp_common::wire::{Origin, Usage};
use cp_http::sse::Event;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::json::TextBuffer;
use super::{Answer, OnText, Part, TextKind, UpstreamError, bad_answer, cut, json as loose, text_of};

/// What came of an answer: a whole body, or an event of a stream.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub value: &'a Value,
    /// Its bytes, where their spelling matters.
    pub bytes: &'a [u8],
    /// Whether halves of characters stand in the value as placeholders.
    pub has_halves: bool,
}

/// Puts an answer together.
pub(crate) trait Decoder {
    /// Takes an answer that came whole.
    fn whole(&mut self, body: &Payload<'_>) -> Result<()>;
    /// Takes an event, shows the text it brings, and returns whether it was the last.
    fn event(&mut self, event: &Payload<'_>, show: &mut OnText<'_>) -> Result<bool>;
    /// What has come so far.
    fn partial(&mut self) -> &mut Partial;
    /// The parts that have come, in order. At the limit a call that is not complete is left out.
    fn parts(&mut self, at_limit: bool) -> Result<Vec<Part>>;
}

/// Feeds an event to a decoder: parses it, raises the error it may be, and passes the rest on.
pub(crate) fn decode_event(decoder: &mut dyn Decoder, event: &Event, show: &mut OnText<'_>) -> Result<bool> {
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
    decoder.event(&Payload { value: &loose.value, bytes: data, has_halves: loose.has_halves }, show)
}

/// Parses what a server sent, telling bad bytes from bad JSON.
pub(crate) fn parsed(bytes: &[u8]) -> Result<loose::ParsedJson> {
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

/// What has come so far, whatever the dialect.
#[derive(Default)]
pub(crate) struct Partial {
    /// The provider's id.
    pub id: Option<String>,
    /// The model that answers.
    pub model: Option<String>,
    /// The words, as they were shown.
    pub text: TextBuffer,
    /// What the model thinks, as it was shown.
    thinking: TextBuffer,
    /// Why it ended, once that is known.
    pub stop: Option<String>,
    /// What was used.
    pub usage: Option<Usage>,
    /// Whether the end was announced.
    pub ended: bool,
}

impl Partial {
    /// Takes the id and the model from the members that hold them, unless they are known.
    pub(super) fn identify(&mut self, from: &Value, id: &str, model: &str) {
        for (name, known) in [(id, &mut self.id), (model, &mut self.model)] {
            if known.is_none() {
                *known = text_of(from, name).filter(|text| !text.is_empty()).map(str::to_owned);
            }
        }
    }

    /// Appends text and shows it.
    pub(crate) fn show(&mut self, piece: &str, has_halves: bool, show: &mut OnText<'_>) -> Result<()> {
        let shown = self.text.push(piece, has_halves);
        if shown.is_empty() { Ok(()) } else { show(TextKind::Answer, &shown) }
    }

    /// Appends what the model thinks and shows it.
    pub(super) fn think(&mut self, piece: &str, has_halves: bool, show: &mut OnText<'_>) -> Result<()> {
        let shown = self.thinking.push(piece, has_halves);
        if shown.is_empty() { Ok(()) } else { show(TextKind::Thinking, &shown) }
    }
}

/// The answer that a decoder has, if it came to its end; else an error that says how it broke.
pub(crate) fn finish(decoder: &mut dyn Decoder, here: &Origin) -> Result<Answer> {
    let partial = std::mem::take(decoder.partial());
    let reached_limit = matches!(partial.stop.as_deref(), Some("max_tokens" | "model_context_window_exceeded"));
    if !partial.ended && partial.stop.is_none() {
        let nothing = partial.id.is_none() && decoder.parts(true).is_ok_and(|parts| parts.is_empty());
        return Err(if nothing { bad_answer("empty", "the answer is empty") } else { cut() });
    }
    // A call that the limit cut off inside its arguments is not a call.
    let parts = decoder.parts(reached_limit)?;
    let Partial { id, model, stop, usage, .. } = partial;
    Answer { id, model, stop: stop.unwrap_or_default(), usage, ..Answer::of_parts(parts, here)? }.checked()
}

/// The arguments of a call, which are an object, in the text that a model wrote. What is not an object stands there as a string:
/// the model can be answered that its call was wrong, and no tool takes it for arguments.
pub(crate) fn arguments(text: &str) -> Box<RawValue> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let loose = loose::parse(text.as_bytes()).ok().filter(|loose| loose.value.is_object());
    let raw = match loose {
        // What the model wrote is passed on as it is, but for halves that no reader would take.
        Some(loose) if !loose.has_halves => RawValue::from_string(text.trim().replace(['\n', '\r'], " ")).ok(),
        Some(_) => {
            loose::parse_lossy(text.as_bytes()).ok().and_then(|value| RawValue::from_string(value.to_string()).ok())
        }
        None => None,
    };
    raw.or_else(|| to_raw_value(text).ok()).unwrap_or_default()
}

/// The arguments of a call; none of one that the limit cut off.
pub(super) fn complete_arguments(text: &str, at_limit: bool) -> Option<Box<RawValue>> {
    Some(arguments(text)).filter(|input| !at_limit || input.get().starts_with('{'))
}

/// An id for a call that came without one. It is not only unique in its answer: a conversation has many.
pub(crate) fn fresh_id() -> String {
    // What the kernel cannot fill stays zero, and one id of that kind is still an id.
    format!("call_{}", hex(&random::<8>().unwrap_or_default()))
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
