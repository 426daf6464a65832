//! A message of the client, as far as the transport reads it, and the HTTP headers that repeat it.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cp_mcp_wire::{Message, Page, parse};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::endpoint::is_token;
use crate::gate::id_of;

/// A message of the client.
#[derive(Debug, Default)]
pub(super) struct ClientMessage {
    /// The id of a request, as JSON.
    pub(super) id: Option<String>,
    /// True for a handshake that the transport repeats: its response is not passed on.
    pub(super) is_repeated: bool,
    /// The method; empty in a response.
    pub(super) method: String,
    params: Params,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Params {
    name: Option<String>,
    uri: Option<String>,
    arguments: Value,
    #[serde(rename = "requestId")]
    request: Option<Box<RawValue>>,
    #[serde(rename = "_meta")]
    meta: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
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
        Self { id, is_repeated: false, method, params }
    }

    /// The id of the request that this cancels.
    pub(super) fn cancelled(&self) -> Option<String> {
        self.params.request.as_deref().filter(|_| self.method == "notifications/cancelled").map(id_of)
    }

    /// The protocol version in the metadata of a request without a session.
    pub(super) fn version(&self) -> Option<&str> {
        self.params.meta.version.as_deref()
    }

    /// The headers of a request without a session, which repeat its method and target for HTTP proxies.
    pub(super) fn headers(&self, mirrors: &Mirrors) -> Vec<(String, String)> {
        let Some(version) = self.version() else { return Vec::new() };
        let Params { name, uri, arguments, .. } = &self.params;
        let name = match self.method.as_str() {
            "tools/call" | "prompts/get" => name.as_deref(),
            "resources/read" => uri.as_deref(),
            _ => None,
        };
        let mut headers =
            vec![("MCP-Protocol-Version".to_owned(), header(version)), ("Mcp-Method".to_owned(), header(&self.method))];
        headers.extend(name.map(|name| ("Mcp-Name".to_owned(), header(name))));
        if let Some(tool) = name.filter(|_| self.method == "tools/call") {
            let values = mirrors.values(tool, arguments);
            headers.extend(values.map(|(name, value)| (format!("Mcp-Param-{name}"), header(&value))));
        }
        headers
    }
}

/// The value of a header, in base64 if the text is not a valid value.
fn header(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value;
    if is_plain && !(value.starts_with("=?base64?") && value.ends_with("?=")) {
        return value.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(value))
}

/// The arguments that are repeated in headers, by tool: the path of each argument, and the name of its header.
#[derive(Debug, Default)]
pub(super) struct Mirrors(HashMap<String, Vec<(Vec<String>, String)>>);

impl Mirrors {
    /// Reads the result of `tools/list`.
    pub(super) fn learn(&mut self, line: &[u8]) {
        let Some(Message::Answer { outcome: Ok(page), .. }) = parse(line) else { return };
        let page: Page = serde_json::from_str(page.get()).unwrap_or_default();
        for tool in page.tools {
            let schema = tool.input_schema.and_then(|schema| serde_json::from_str(schema.get()).ok());
            let mut found = Vec::new();
            marked(&schema.unwrap_or_default(), &mut Vec::new(), &mut found);
            self.0.insert(tool.name, found);
        }
    }

    /// The headers of a call, with the values of the arguments that are present.
    pub(super) fn values<'a>(&'a self, tool: &str, arguments: &'a Value) -> impl Iterator<Item = (&'a str, String)> {
        let marked = self.0.get(tool).into_iter().flatten();
        marked.filter_map(move |(path, name)| {
            let value = path.iter().try_fold(arguments, |value, member| value.get(member))?;
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(whether) => whether.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((name.as_str(), value))
        })
    }
}

/// Collects the marked properties at every depth. An invalid header name is ignored.
fn marked(schema: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    for (member, property) in schema.get("properties").and_then(Value::as_object).unwrap_or(&Map::new()) {
        path.push(member.clone());
        if let Some(name) = property.get("x-mcp-header").and_then(Value::as_str).filter(|name| is_token(name)) {
            found.push((path.clone(), name.to_owned()));
        }
        marked(property, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_header_value_is_encoded() {
        for (value, written) in [
            ("us-west1", "us-west1"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(header(value), written);
        }
    }

    #[test]
    fn headers_repeat_request_only_without_session() {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let names = |method: &str, params: &str| {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
            let headers = ClientMessage::of(line.as_bytes()).headers(&Mirrors::default());
            headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
        };
        let version = "MCP-Protocol-Version: 2026-07-28, ";
        assert_eq!(names("tools/list", meta), format!("{version}Mcp-Method: tools/list"));
        let called = names("tools/call", &format!(r#""name":"a","uri":"b",{meta}"#));
        assert_eq!(called, format!("{version}Mcp-Method: tools/call, Mcp-Name: a"));
        let read = names("resources/read", &format!(r#""name":"a","uri":"b",{meta}"#));
        assert_eq!(read, format!("{version}Mcp-Method: resources/read, Mcp-Name: b"));
        assert_eq!(names("tools/call", r#""name":"a""#), "");
    }

    use serde_json::json;

    #[test]
    fn marked_arguments_are_found_at_every_depth() {
        let schema = json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "plain": {},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}, "bad": {"x-mcp-header": "a\r\nb"}}}}});
        let line = json!({"id": 1, "result": {"tools": [{"name": "t", "inputSchema": schema}]}}).to_string();
        let mut mirrors = Mirrors::default();
        mirrors.learn(line.as_bytes());
        let values = |arguments: Value| {
            mirrors.values("t", &arguments).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let given = json!({"region": "us", "plain": "x", "deep": {"n": 7, "bad": "y"}});
        assert_eq!(values(given), ["Region=us", "N=7"]);
        assert!(values(json!({"region": null, "deep": []})).is_empty());
        assert_eq!(mirrors.values("other", &json!({"region": "us"})).count(), 0);
    }
}
