//! An answer that is still coming. Both a cut stream and a finished one are read from here.

use std::collections::BTreeMap;

use cp_common::keys::{hex, random};
use cp_common::wire::{Origin, Usage};
use cp_common::{Result, json};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::body::Body;
use super::loose::{self, Text};
use super::{Answer, Decoder, Show, Shown, bad_answer, cut, text_of};

/// What has come so far, whatever the dialect.
#[derive(Default)]
pub(crate) struct Partial {
    /// The provider's id.
    pub id: Option<String>,
    /// The model that answers.
    pub model: Option<String>,
    /// The words, as they were shown.
    pub text: Text,
    /// What the model thinks, as it was shown.
    thinking: Text,
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
    pub(crate) fn show(&mut self, piece: &str, halves: bool, show: &mut Show<'_>) -> Result<()> {
        let shown = self.text.push(piece, halves);
        if shown.is_empty() { Ok(()) } else { show(Shown::Words, &shown) }
    }

    /// Appends what the model thinks and shows it.
    pub(super) fn think(&mut self, piece: &str, halves: bool, show: &mut Show<'_>) -> Result<()> {
        let shown = self.thinking.push(piece, halves);
        if shown.is_empty() { Ok(()) } else { show(Shown::Thinking, &shown) }
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
        Some(loose) if !loose.halves => RawValue::from_string(text.trim().replace(['\n', '\r'], " ")).ok(),
        Some(_) => {
            loose::parse_whole(text.as_bytes()).ok().and_then(|value| RawValue::from_string(value.to_string()).ok())
        }
        None => None,
    };
    raw.or_else(|| to_raw_value(text).ok()).unwrap_or_default()
}

/// The arguments of a call; none of one that the limit cut off.
pub(super) fn complete_arguments(text: &str, at_limit: bool) -> Option<Box<RawValue>> {
    Some(arguments(text)).filter(|input| !at_limit || input.get().starts_with('{'))
}

/// A value in the bytes of an event, where a JSON Pointer leads to, in one line: a long integer must not become a float.
pub(crate) fn exact(bytes: &[u8], pointer: &str) -> Option<Box<RawValue>> {
    let mut here: &RawValue = serde_json::from_slice(bytes).ok()?;
    for name in pointer.split('/').skip(1) {
        here = match name.parse::<usize>() {
            Ok(at) => serde_json::from_str::<Vec<&RawValue>>(here.get()).ok()?.get(at)?,
            Err(_) => serde_json::from_str::<BTreeMap<String, &RawValue>>(here.get()).ok()?.get(name)?,
        };
    }
    let mut line = Vec::with_capacity(here.get().len());
    json::normalize(here.get().as_bytes(), &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

/// The object with these members, one of them perhaps in other bytes.
pub(super) fn object<'a>(
    members: impl IntoIterator<Item = (&'a String, &'a Value)>,
    spelt: Option<(&str, &RawValue)>,
) -> Result<Box<RawValue>> {
    let mut body = Body::default();
    for (name, value) in members {
        match spelt.filter(|(spelt, _)| spelt == name) {
            Some((name, bytes)) => body.set(name, bytes)?,
            None => body.set(name, value)?,
        }
    }
    body.into_raw()
}

/// An id for a call that came without one. It is not only unique in its answer: a conversation has many.
pub(crate) fn fresh_id() -> String {
    // What the kernel cannot fill stays zero, and one id of that kind is still an id.
    format!("call_{}", hex(&random::<8>().unwrap_or_default()))
}
