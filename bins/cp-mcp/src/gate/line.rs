//! Lines of the protocol as the gate writes them: the members that it has read, and no others that a server could read in another way.

use cp_common::{Code, Error};
use cp_mcp_wire::{CallResult, Failure, INTERNAL_ERROR, INVALID_REQUEST, failure, result};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// An id, however it was spelled.
pub(super) type Id = String;

/// The one spelling of an id.
pub(super) fn id_of(id: &RawValue) -> Id {
    serde_json::from_str::<Value>(id.get()).map_or_else(|_| id.get().to_owned(), |id| id.to_string())
}

#[derive(Serialize)]
struct Outgoing<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
}

/// The line of a request, or without an id of a notification.
pub(super) fn message(id: Option<&RawValue>, method: &str, params: Option<&RawValue>) -> String {
    let text = serde_json::to_string(&Outgoing { jsonrpc: "2.0", id, method, params });
    text.map(|text| text + "\n").unwrap_or_default()
}

/// The line of an answer.
pub(super) fn answer(id: &RawValue, outcome: &Result<&RawValue, Failure>) -> String {
    match outcome {
        Ok(value) => result(id, value),
        Err(why) => failure(id, why),
    }
    .unwrap_or_default()
}

/// The line that refuses a request: of a tool, as a result that a model reads.
pub(super) fn refusal(id: &RawValue, method: &str, error: &Error) -> String {
    let hint = error.hint_text().map(|hint| format!("\n{hint}")).unwrap_or_default();
    let text = format!("{}: {}{hint}", error.code(), error.message());
    if method == "tools/call" {
        return result(id, &CallResult::of_text(text, true)).unwrap_or_default();
    }
    let code = if error.code() == Code::Validation { INVALID_REQUEST } else { INTERNAL_ERROR };
    answer(id, &Err(Failure::new(code, text)))
}
