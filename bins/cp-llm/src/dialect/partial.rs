//! An answer that is still coming. Both a cut stream and a finished one are read from here.

use cp_common::Result;
use cp_common::keys::{hex, random};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::loose::{self, Text};
use super::{Answer, Call, Show, Tokens, bad_answer, cut, text_of};

/// What has come so far.
#[derive(Default)]
pub(crate) struct Partial {
    /// The provider's id.
    pub id: Option<String>,
    /// The model that answers.
    pub model: Option<String>,
    pub text: Text,
    /// Tool calls in the order they began.
    pub calls: Vec<PartialCall>,
    /// Other blocks.
    pub others: Vec<Value>,
    /// Why it ended, once that is known.
    pub stop: Option<String>,
    /// What was used.
    pub usage: Option<Tokens>,
    /// Whether the end was announced.
    pub ended: bool,
}

/// A tool call whose arguments are still coming.
#[derive(Default)]
pub(crate) struct PartialCall {
    /// The provider's index, if it has one.
    pub index: Option<u64>,
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text of the arguments so far.
    pub arguments: Text,
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
        if shown.is_empty() { Ok(()) } else { show(&shown) }
    }

    /// The answer, if the stream came to its end; else an error that says how it broke.
    pub(crate) fn finish(self) -> Result<Answer> {
        if !self.ended && self.stop.is_none() {
            let nothing = self.text.is_empty() && self.calls.is_empty() && self.id.is_none();
            return Err(if nothing { bad_answer("empty", "the answer is empty") } else { cut() });
        }
        Answer {
            id: self.id,
            model: self.model,
            text: self.text.finish(),
            others: self.others,
            calls: self.calls.into_iter().map(PartialCall::finish).collect(),
            stop: self.stop.unwrap_or_default(),
            usage: self.usage,
        }
        .checked()
    }
}

impl PartialCall {
    fn finish(self) -> Call {
        Call { id: self.id, name: self.name, input: arguments(&self.arguments.finish()) }
    }
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

/// An id for a call that came without one. It is not only unique in its answer: a conversation has many.
pub(crate) fn fresh_id() -> String {
    // What the kernel cannot fill stays zero, and one id of that kind is still an id.
    format!("call_{}", hex(&random::<8>().unwrap_or_default()))
}
