//! The client of a request, and the form of a result in the protocol version of the request.

use cp_mcp_wire::{Failure, HANDSHAKES, INVALID_PARAMS, LEGACY, MODERN, Meta, UNSUPPORTED_VERSION};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::gate::party;

/// The instructions for the model.
const INSTRUCTIONS: &str = "Commands and file changes are decided about by a policy, run in a sandbox and recorded. A refusal says which rule \
                            refused and what to do instead.";

/// How long a client may cache a list, which does not change while the server runs, in milliseconds.
const KEPT: u64 = 3_600_000;

/// The action of a client's response to a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FormAction {
    Accept,
    Decline,
    /// The form was dismissed, which decides nothing.
    Cancel,
}

/// Reads the action from the result of a form.
pub(super) fn form_action(result: &Value) -> Option<FormAction> {
    FormAction::deserialize(result.get("action")?).ok()
}

/// The client in the metadata of a request; `None` if the request belongs to a handshake. A client that only looks for
/// the versions may leave out its capabilities.
pub(super) fn client_of(params: &Map<String, Value>, only_looks: bool) -> Result<Option<Meta>, Failure> {
    let Some(meta) = params.get("_meta").filter(|meta| meta.get(Meta::VERSION).is_some()) else { return Ok(None) };
    let client = Meta::deserialize(meta).map_err(|e| Failure::new(INVALID_PARAMS, format!("_meta: {e}")))?;
    if !client.is_modern() {
        let message = format!("the version {} is not served without a handshake", client.version);
        let data = json!({ "supported": [MODERN], "requested": client.version });
        return Err(Failure { data, ..Failure::new(UNSUPPORTED_VERSION, message) });
    }
    if !client.capabilities.is_object() && !only_looks {
        return Err(Failure::new(INVALID_PARAMS, "`_meta` has no clientCapabilities"));
    }
    Ok(Some(client))
}

/// The client of a handshake. It gets its requested version if that is supported.
pub(super) fn greeted(params: Map<String, Value>) -> Result<Meta, Failure> {
    let asked = Meta::deserialize(Value::Object(params));
    let mut client = asked.map_err(|e| Failure::new(INVALID_PARAMS, format!("initialize: {e}")))?;
    if !HANDSHAKES.contains(&client.version.as_str()) {
        LEGACY.clone_into(&mut client.version);
    }
    Ok(client)
}

/// The description of the server, with the negotiated version of a handshake or the versions without one.
pub(super) fn greeting(version: (&str, Value)) -> Value {
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {} });
    let mut greeting = json!({ "capabilities": capabilities, "serverInfo": party(), "instructions": INSTRUCTIONS });
    greeting[version.0] = version.1;
    greeting
}

/// A result in the protocol version of its request. Without a session it has its type, the server, and the cache time
/// of a list.
pub(super) fn complete(mut result: Value, is_modern: bool, is_list: bool) -> Value {
    let Some(members) = result.as_object_mut().filter(|_| is_modern) else { return result };
    members.entry("resultType").or_insert("complete".into());
    if is_list {
        members.insert("ttlMs".to_owned(), KEPT.into());
        members.insert("cacheScope".to_owned(), "private".into());
    }
    let meta = members.entry("_meta").or_insert_with(|| json!({}));
    meta["io.modelcontextprotocol/serverInfo"] = serde_json::to_value(party()).unwrap_or_default();
    result
}

/// The members of the parameters.
pub(super) fn members(params: Option<&RawValue>) -> Result<Map<String, Value>, Failure> {
    let read = |params: &RawValue| serde_json::from_str(params.get());
    params.map_or_else(|| Ok(Map::new()), read).map_err(|e| Failure::new(INVALID_PARAMS, format!("params: {e}")))
}
