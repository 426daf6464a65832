//! `prompt`: a request for a model.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Error, Reply, Result, ToolSpec, Turn, raw};

/// A request for a model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["messages", "row"])))]
pub struct Prompt {
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session that the history came from and that new turns are added to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The system text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The id of the governed prompt that is the system text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    /// The conversation, oldest first.
    pub messages: Vec<Turn>,
    /// Number of leading messages that came from the session.
    #[serde(default)]
    pub history: usize,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The model to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sampling parameters.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
    /// The row that the prompt was made from, for joins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<Box<RawValue>>,
    /// Report of omitted and redacted parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<RawValue>>,
    /// JSON Pointers to untrusted members.
    #[serde(default, rename = "_untrusted", skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<String>,
}

/// Estimates the tokens of `bytes` bytes. Tokenizers differ between models.
pub const fn estimated_tokens(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

impl Prompt {
    /// Estimates the tokens of the prompt.
    pub fn estimated_tokens(&self) -> Result<usize> {
        let fixed = self.system.as_ref().map_or(0, String::len) + raw(&self.tools)?.get().len();
        let turns = self.messages.iter().map(Turn::size).sum::<Result<usize>>()?;
        Ok(estimated_tokens(fixed + turns))
    }

    /// Makes a prompt of one user text.
    pub fn of_text(text: &str) -> Self {
        Self { messages: vec![Turn::text("user", text)], ..Self::default() }
    }

    /// Returns the turns that are not from the session, which become `message.data.input`.
    pub fn input(&self) -> &[Turn] {
        self.messages.get(self.history..).unwrap_or_default()
    }

    /// Checks that there are messages, and that the history is not longer than the messages.
    pub fn checked(self) -> Result<Self> {
        if self.messages.is_empty() {
            return Err(
                Error::validation("data.messages is empty").hint("give at least one {\"role\":\"user\",\"content\":…}")
            );
        }
        if self.history > self.messages.len() {
            return Err(Error::validation(format!(
                "data.history is {}, but there are {} messages",
                self.history,
                self.messages.len()
            )));
        }
        Ok(self)
    }
}

impl Reply for Prompt {
    fn text(&self) -> String {
        let mut lines: Vec<String> = self.system.iter().map(|system| format!("system: {system}")).collect();
        lines.extend(self.messages.iter().map(|turn| format!("{}: {}", turn.role, turn.content.text())));
        lines.join("\n")
    }
}

/// Sampling parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Params {
    /// Maximum number of output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature, 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: the share of probability to choose from, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Stop sequences: texts that end the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

impl Params {
    /// True if no parameter is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_round_trip_keeps_numbers_and_unknown_block_members() {
        let text = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"x"}},{"type":"tool_use","id":"1","name":"f","input":{"n":12345678901234567890123456789,"e":1e2}}]}],"history":0}"#;
        let prompt: Prompt = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&prompt).unwrap(), text);
        assert_eq!(prompt.messages[0].content.text(), "a");
    }

    #[test]
    fn prompt_with_history_longer_than_messages_fails() {
        let prompt: Prompt =
            serde_json::from_str(r#"{"messages":[{"role":"user","content":"a"}],"history":2}"#).unwrap();
        assert!(prompt.checked().is_err());
        assert!(serde_json::from_str::<Prompt>(r#"{"messages":[{"role":"user","content":7}]}"#).is_err());
    }
}
