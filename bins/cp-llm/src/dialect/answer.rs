//! One whole answer of a model, in no provider's dialect.

use cp_common::Result;
use cp_common::wire::Usage;
use serde_json::Value;
use serde_json::value::RawValue;

use super::upstream::bad_answer;

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The provider's id of the message.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    pub text: String,
    /// Blocks that are neither text nor tool calls, as they came.
    pub others: Vec<Value>,
    /// The tool calls that are complete.
    pub calls: Vec<Call>,
    /// Why it ended: `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, `pause_turn`, `refusal`, `model_context_window_exceeded`.
    pub stop: String,
    /// What it used, where the provider reports it.
    pub usage: Option<Tokens>,
}

/// A tool call, whole.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The id that the result must carry.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, an object, in the bytes that the model wrote; a string where it wrote no object.
    pub input: Box<RawValue>,
}

/// The tokens of a request and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Read at full price.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the provider's cache; not part of `input`.
    pub cache_read: u64,
    /// Written to the provider's cache; not part of `input`.
    pub cache_write: u64,
}

impl Answer {
    /// The answer, unless there is nothing in it.
    pub(crate) fn checked(mut self) -> Result<Self> {
        if self.stop.is_empty() || (self.stop == "end_turn" && !self.calls.is_empty()) {
            // Some servers report `stop` after tool calls, or no reason at all.
            if self.calls.is_empty() { "end_turn" } else { "tool_use" }.clone_into(&mut self.stop);
        }
        if matches!(self.stop.as_str(), "max_tokens" | "model_context_window_exceeded") {
            // The limit was reached inside the arguments: a call that is not complete is not a call.
            self.calls.retain(|call| call.input.get().starts_with('{'));
        }
        if self.text.is_empty() && self.calls.is_empty() && self.others.is_empty() && self.stop == "end_turn" {
            return Err(bad_answer("empty", "the answer is empty"));
        }
        Ok(self)
    }
}

impl Tokens {
    /// The tokens where a provider counts those from its cache among the prompt's.
    pub(super) fn with_cached(prompt: u64, output: u64, cached: u64) -> Self {
        Self { input: prompt.saturating_sub(cached), output, cache_read: cached, cache_write: 0 }
    }
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
        }
    }
}

impl From<Tokens> for Usage {
    /// What the tokens cost is not known here.
    fn from(tokens: Tokens) -> Self {
        Self {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            cost_usd: None,
        }
    }
}
