//! Messages of JSON-RPC 2.0, one object a line, and versions of the protocol. Without sessions, each request has the
//! version; earlier versions start with a handshake.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// JSON-RPC 2.0, section 5.1: the line is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: the line is JSON, and not a message.
pub const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: the method does not exist.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are not valid.
pub const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC: an internal error.
pub const INTERNAL_ERROR: i64 = -32603;
/// MCP: the version of a request is not supported.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// A received message.
#[derive(Debug)]
pub enum Message<'a> {
    /// A request, which needs a response, or a notification, which has none.
    Request {
        /// The id of a request, as it was written.
        id: Option<&'a RawValue>,
        /// The method.
        method: String,
        /// The parameters.
        params: Option<&'a RawValue>,
    },
    /// The response to a request.
    Answer {
        /// The id of the request.
        id: &'a RawValue,
        /// The result, or the failure.
        outcome: Result<&'a RawValue, Failure>,
    },
}

/// The error of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// A code of JSON-RPC or of the protocol.
    pub code: i64,
    /// The message.
    #[serde(default)]
    pub message: String,
    /// Further data.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.message, self.code)
    }
}

impl Failure {
    /// A failure without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null }
    }
}

#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Failure>,
}

/// Distinguishes an id that is null from a missing one.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

impl<'a> Incoming<'a> {
    fn message(self) -> Option<Message<'a>> {
        let Self { method, params, result, error, .. } = self;
        Some(match (method, self.id.filter(|id| id.get() != "null"), result, error) {
            (Some(method), id, ..) => Message::Request { id, method, params },
            (None, Some(id), _, Some(failure)) => Message::Answer { id, outcome: Err(failure) },
            (None, Some(id), result, None) => {
                Message::Answer { id, outcome: result.ok_or_else(|| Failure::new(0, "the answer has no result")) }
            }
            (None, None, ..) => return None,
        })
    }
}

/// Parses a line: the error of an invalid line has its id, if the id is known.
pub fn read(line: &[u8]) -> Result<Message<'_>, (Option<&RawValue>, Failure)> {
    let invalid = |message: &str| Failure::new(INVALID_REQUEST, message);
    // This check includes the bytes of strings.
    let whole = serde_json::from_slice::<&RawValue>(line);
    let whole = whole.map_err(|e| (None, Failure::new(PARSE_ERROR, format!("not JSON: {e}"))))?;
    if !whole.get().starts_with('{') {
        return Err((None, invalid("a message is one object a line")));
    }
    let head: Incoming<'_> =
        serde_json::from_slice(line).map_err(|e| (None, invalid(&format!("not a message: {e}"))))?;
    // Other types have no canonical form.
    let is_id = |id: &&RawValue| id.get().starts_with(|first: char| "\"-0123456789".contains(first));
    let id = head.id.filter(is_id);
    if head.id.is_some() && id.is_none() {
        // Who could not read a request answers it without an id.
        return Err((None, head.error.unwrap_or_else(|| invalid("an id is a string or a number"))));
    }
    if head.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err((id, invalid("`jsonrpc` is not \"2.0\"")));
    }
    let has_shape = head.params.is_none_or(|params| params.get().starts_with('{'));
    match head.message() {
        None => Err((id, invalid("there is neither a method nor an answer with an id"))),
        Some(_) if !has_shape => Err((id, Failure::new(INVALID_PARAMS, "`params` is not an object"))),
        Some(message) => Ok(message),
    }
}

/// The line of a request, or of a notification if there is no id. The parameters keep their bytes.
pub fn request(id: Option<&RawValue>, method: &str, params: Option<&impl Serialize>) -> String {
    #[derive(Serialize)]
    struct Members<'a, P> {
        jsonrpc: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a RawValue>,
        method: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<&'a P>,
    }
    json(&Members { jsonrpc: "2.0", id, method, params }) + "\n"
}

/// The line of a response.
pub fn response(id: &RawValue, outcome: Result<&impl Serialize, &Failure>) -> String {
    outcome.map_or_else(|error| failure(id, error), |value| result(id, value))
}

/// The line of a successful response.
pub fn result(id: &RawValue, result: &impl Serialize) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{}}}\n", json(result))
}

/// The line of a failed response. The id is [`RawValue::NULL`] if it is not known.
pub fn failure(id: &RawValue, error: &Failure) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{}}}\n", json(error))
}

/// A part of a message as JSON. It has only maps with text as names, which always have such a form.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The version without sessions.
pub const MODERN: &str = "2026-07-28";
/// The last version with a handshake.
pub const LEGACY: &str = HANDSHAKES[0];
/// The supported versions with a handshake, newest first.
pub const HANDSHAKES: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A client or server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// The description of a client: in the `_meta` of a request without a session, or in the parameters of `initialize`,
/// whose names are shorter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Meta {
    /// The protocol version of the request, or the one that is requested.
    #[serde(rename = "io.modelcontextprotocol/protocolVersion", alias = "protocolVersion")]
    pub version: String,
    /// The client.
    #[serde(rename = "io.modelcontextprotocol/clientInfo", alias = "clientInfo", default)]
    pub client: Party,
    /// The capabilities of the client.
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities", alias = "capabilities", default)]
    pub capabilities: Value,
}

impl Meta {
    /// The member of the version.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

    /// True for the version without sessions.
    pub fn is_modern(&self) -> bool {
        self.version == MODERN
    }

    /// True if the client supports forms.
    pub fn has_forms(&self) -> bool {
        // An empty object means forms; an object that lists only other modes does not.
        let modes = self.capabilities.get("elicitation").and_then(Value::as_object);
        modes.is_some_and(|modes| modes.is_empty() || modes.contains_key("form"))
    }
}

/// What a client reads of the result of `server/discover` and of `initialize`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Greeting {
    /// The negotiated version, after a handshake.
    pub protocol_version: String,
    /// The server.
    pub server_info: Party,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_parsed_as_written() {
        let seven = RawValue::from_string("7".to_owned()).unwrap();
        let line = request(Some(&seven), "tools/list", Some(&json!({"cursor": "x"})));
        assert_eq!(line, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\",\"params\":{\"cursor\":\"x\"}}\n");
        let Ok(Message::Request { id, method, params }) = read(line.as_bytes()) else { panic!("{line}") };
        let id = id.unwrap();
        assert_eq!((method.as_str(), params.unwrap().get()), ("tools/list", "{\"cursor\":\"x\"}"));
        let answered = result(id, &json!({"tools": []}));
        let found = read(answered.as_bytes());
        assert!(matches!(found, Ok(Message::Answer { id, outcome: Ok(_) }) if id.get() == "7"), "{answered}");
        let why = Failure { code: METHOD_NOT_FOUND, message: "no".into(), data: json!({"supported": ["1", "2"]}) };
        let refused = failure(id, &why);
        let Ok(Message::Answer { outcome: Err(found), .. }) = read(refused.as_bytes()) else { panic!("{refused}") };
        assert_eq!(found, why);
        let said = request(None, "notifications/initialized", Some(&json!({})));
        assert_eq!(said, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\",\"params\":{}}\n");
        assert!(matches!(read(said.as_bytes()), Ok(Message::Request { id: None, .. })));
    }

    #[test]
    fn id_and_large_integer_are_kept() {
        let line = br#"{"jsonrpc":"2.0","id":"a\"1","method":"x","params":{"n":12345678901234567890123}}"#;
        let Ok(Message::Request { id, params, .. }) = read(line) else { panic!() };
        let answered = result(id.unwrap(), &params);
        assert!(answered.contains(r#""id":"a\"1","result":{"n":12345678901234567890123}"#), "{answered}");
    }
}
