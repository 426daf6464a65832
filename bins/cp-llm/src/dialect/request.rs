//! One request to a model, in no provider's dialect.

use cp_common::Result;
use cp_common::wire::{ToolSpec, Turn, raw};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

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
    pub(super) fn whole_system(&self) -> Option<String> {
        let turns = self.messages.iter().filter(|turn| turn.role == "system").map(|turn| turn.content.text());
        let texts: Vec<String> =
            std::iter::once(self.system.clone()).chain(turns).filter(|text| !text.is_empty()).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// A parameter that is an object, to be added to; empty where none is given.
    pub(super) fn object(&self, name: &str) -> Map<String, Value> {
        self.params.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// The tools in the form of a dialect, and those of the provider that the parameters name; none where there are none.
    pub(super) fn tools<T: Serialize>(&self, own: impl IntoIterator<Item = T>) -> Result<Option<Vec<Box<RawValue>>>> {
        let theirs = self.params.get("tools").and_then(Value::as_array).into_iter().flatten();
        let tools = own.into_iter().map(|tool| raw(&tool)).chain(theirs.map(raw)).collect::<Result<Vec<_>>>()?;
        Ok(Some(tools).filter(|tools| !tools.is_empty()))
    }

    /// The turns that are not system turns.
    pub(super) fn conversation_turns(&self) -> impl Iterator<Item = &Turn> {
        self.messages.iter().filter(|turn| turn.role != "system")
    }
}
