//! How an answer ends: our name for an end, and its spellings in each wire API and at the servers that are compatible
//! with it.

use cp_common::wire::{Message, Usage};
use cp_common::{Code, Error, Result};

use super::{Answer, Request};

/// The wire APIs, our name for the end, and its spellings in any case. An end that is not here is a failure.
const ENDS: [(&str, &str, &str); 15] = [
    ("openai", "end_turn", "stop eos eos_token end_turn complete"),
    ("openai", "tool_use", "tool_calls tool_call function_call tool_use"),
    ("openai", "max_tokens", "length max_tokens"),
    ("openai", "model_context_window_exceeded", "model_length model_context_window_exceeded error_limit"),
    ("openai", "refusal", "content_filter content_filtered refusal safety recitation sensitive error_toxic"),
    ("anthropic", "end_turn", "end_turn stop"),
    ("anthropic", "tool_use", "tool_use tool_calls"),
    ("anthropic", "max_tokens", "max_tokens length"),
    ("openai-responses", "end_turn", "completed"),
    ("openai-responses", "refusal", "content_filter"),
    ("openai-responses", "max_tokens", "max_output_tokens max_tokens"),
    ("gemini", "end_turn", "stop"),
    ("gemini", "tool_use", "function_call tool_call"),
    ("gemini", "max_tokens", "max_tokens"),
    (
        "gemini",
        "refusal",
        "safety recitation blocklist prohibited_content spii image_safety image_prohibited_content image_recitation",
    ),
];

/// The ends that can be successes.
pub(crate) const SUCCESSES: [&str; 4] = ["end_turn", "stop_sequence", "tool_use", "max_tokens"];

/// Our name for an end, or its own spelling if it is not known.
pub(super) fn named(api: &str, spelled: &str) -> String {
    let lower = spelled.to_ascii_lowercase();
    let known = ENDS.iter().find(|(of, _, words)| *of == api && words.split(' ').any(|word| word == lower));
    known.map_or(spelled, |(_, name, _)| *name).to_owned()
}

impl Answer {
    /// Fails unless the answer is whole, or was cut at a limit that the caller chose.
    pub(crate) fn whole(self, request: &Request, fail_on: &[String]) -> Result<Self> {
        let listed = fail_on.contains(&self.stop);
        let (code, message, hint) = match self.stop.as_str() {
            "end_turn" | "stop_sequence" | "tool_use" if !listed => return Ok(self),
            "max_tokens" if !listed && request.most_tokens().is_some() => return Ok(self),
            "max_tokens" | "model_context_window_exceeded" if !listed => (
                Code::Partial,
                "the answer was cut at a limit of the model".to_owned(),
                "a limit of your own, -o max_tokens=N, makes an answer that is cut there a success",
            ),
            "refusal" => (
                Code::Forbidden,
                "the provider refused the answer".to_owned(),
                "change the request: the provider or its filter does not answer this one",
            ),
            stop if listed => {
                (Code::Validation, format!("the answer ended with {stop}"), "--fail-on lists this stop reason")
            }
            stop => {
                let message = match stop {
                    "" => "the server did not say why the answer ended, so it may be cut".to_owned(),
                    stop => format!("the answer ended with `{stop}`, which is not the end of a whole answer"),
                };
                (Code::Server, message, "details.partial has the text that arrived")
            }
        };
        let reason = if code == Code::Server { "end" } else { &self.stop };
        let error = Error::new(code, message).with("origin", "upstream").with("reason", reason);
        Err(error.with("partial", self.content.text()).with("_untrusted", vec!["/partial"]).hint(hint))
    }
}

/// True if the provider counted tokens of an answer that is not usable, so that another attempt would be paid again.
pub(crate) fn is_billed(error: &Error) -> bool {
    let details = error.details();
    let usage: Option<Usage> = details.get("usage").and_then(|usage| serde_json::from_value(usage.clone()).ok());
    usage.is_some_and(|usage| usage.input_tokens + usage.output_tokens > 0)
}

/// What a person should know about the end of an answer that is a success.
pub(crate) fn remark(message: &Message) -> Option<&'static str> {
    match message.stop_reason.as_str() {
        "max_tokens" => Some("the answer was cut at the limit of tokens of the request"),
        "end_turn" if message.content.is_empty() => {
            Some("the answer has no text: the model ended its turn without one")
        }
        _ => None,
    }
}
