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

/// A parsed body or event.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub value: &'a Value,
    /// The bytes, to keep the spelling of numbers.
    pub bytes: &'a [u8],
    /// True if the value has placeholders for lone surrogates.
    pub has_halves: bool,
}

/// Assembles an answer.
pub(crate) trait Decoder {
    /// Decodes a whole body.
    fn whole(&mut self, body: &Payload<'_>) -> Result<()>;
    /// Decodes an event and passes on its text. Returns true after the last event.
    fn event(&mut self, event: &Payload<'_>, show: &mut OnText<'_>) -> Result<bool>;
    /// The members of the answer so far.
    fn partial(&mut self) -> &mut Partial;
    /// Takes the parts so far. With `at_limit`, an incomplete tool call is left out.
    fn parts(&mut self, at_limit: bool) -> Result<Vec<Part>>;
}

/// Parses an event and decodes it. Fails if it reports an error.
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

/// Parses JSON of a server. The error distinguishes invalid UTF-8, an empty body, markup and invalid JSON.
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

/// The members of an answer that all APIs have, as far as they have arrived.
#[derive(Default)]
pub(crate) struct Partial {
    /// The id of the provider.
    pub id: Option<String>,
    /// The model that answers.
    pub model: Option<String>,
    /// The text so far.
    pub text: TextBuffer,
    /// The reasoning so far.
    thinking: TextBuffer,
    /// The stop reason.
    pub stop: Option<String>,
    /// The usage.
    pub usage: Option<Usage>,
    /// True if the server announced the end.
    pub ended: bool,
}

impl Partial {
    /// Sets the id and the model from these members, unless they are set.
    pub(super) fn identify(&mut self, from: &Value, id: &str, model: &str) {
        for (name, known) in [(id, &mut self.id), (model, &mut self.model)] {
            if known.is_none() {
                *known = text_of(from, name).filter(|text| !text.is_empty()).map(str::to_owned);
            }
        }
    }

    /// Appends text and passes it on.
    pub(crate) fn show(&mut self, piece: &str, has_halves: bool, show: &mut OnText<'_>) -> Result<()> {
        let shown = self.text.push(piece, has_halves);
        if shown.is_empty() { Ok(()) } else { show(TextKind::Answer, &shown) }
    }

    /// Appends reasoning and passes it on.
    pub(super) fn think(&mut self, piece: &str, has_halves: bool, show: &mut OnText<'_>) -> Result<()> {
        let shown = self.thinking.push(piece, has_halves);
        if shown.is_empty() { Ok(()) } else { show(TextKind::Thinking, &shown) }
    }
}

/// Makes the answer from a decoder. Fails if the answer is incomplete.
pub(crate) fn finish(decoder: &mut dyn Decoder, here: &Origin) -> Result<Answer> {
    let partial = std::mem::take(decoder.partial());
    let reached_limit = matches!(partial.stop.as_deref(), Some("max_tokens" | "model_context_window_exceeded"));
    if !partial.ended && partial.stop.is_none() {
        let nothing = partial.id.is_none() && decoder.parts(true).is_ok_and(|parts| parts.is_empty());
        return Err(if nothing { bad_answer("empty", "the answer is empty") } else { cut() });
    }
    // A tool call that was cut off at the token limit is dropped.
    let parts = decoder.parts(reached_limit)?;
    let Partial { id, model, stop, usage, .. } = partial;
    Answer { id, model, stop: stop.unwrap_or_default(), usage, ..Answer::of_parts(parts, here)? }.checked()
}

/// Parses the arguments of a tool call. Text that is not an object becomes a string: no tool accepts it, and the model gets an error.
pub(crate) fn arguments(text: &str) -> Box<RawValue> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let loose = loose::parse(text.as_bytes()).ok().filter(|loose| loose.value.is_object());
    let raw = match loose {
        // The bytes of the model are kept, except for lone surrogates, which strict parsers refuse.
        Some(loose) if !loose.has_halves => RawValue::from_string(text.trim().replace(['\n', '\r'], " ")).ok(),
        Some(_) => {
            loose::parse_lossy(text.as_bytes()).ok().and_then(|value| RawValue::from_string(value.to_string()).ok())
        }
        None => None,
    };
    raw.or_else(|| to_raw_value(text).ok()).unwrap_or_default()
}

/// Parses the arguments of a tool call; `None` if they were cut off at the token limit.
pub(super) fn complete_arguments(text: &str, at_limit: bool) -> Option<Box<RawValue>> {
    Some(arguments(text)).filter(|input| !at_limit || input.get().starts_with('{'))
}

/// Makes a random id for a tool call without one. It must be unique in the whole conversation.
pub(crate) fn fresh_id() -> String {
    // Without random bytes the id has zeros.
    format!("call_{}", hex(&random::<8>().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_json_errors_have_reason() {
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
