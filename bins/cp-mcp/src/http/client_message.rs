//! A message of the client, as far as the transport reads it.

use cp_mcp_wire::{Message, parse};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::gate::id_of;

/// A message of the client.
#[derive(Debug, Default)]
pub(super) struct ClientMessage {
    /// The id of a request, as JSON.
    pub(super) id: Option<String>,
    /// The method; empty in a response.
    pub(super) method: String,
    params: Params,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Params {
    #[serde(rename = "requestId")]
    request: Option<Box<RawValue>>,
}

impl ClientMessage {
    /// Reads a line.
    pub(super) fn of(line: &[u8]) -> Self {
        let (id, method, params) = match parse(line) {
            Some(Message::Request { id, method, params }) => (Some(id_of(id)), method, params),
            Some(Message::Notification { method, params }) => (None, method, params),
            Some(Message::Answer { .. }) | None => (None, String::new(), None),
        };
        let params = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        Self { id, method, params }
    }

    /// The id of the request that this cancels.
    pub(super) fn cancelled(&self) -> Option<String> {
        self.params.request.as_deref().filter(|_| self.method == "notifications/cancelled").map(id_of)
    }
}
