//! Arguments that a server wants to be repeated in headers: `x-mcp-header` in the schema of a tool.

use std::collections::HashMap;

use cp_mcp_wire::{Message, Page, parse};
use serde_json::{Map, Value};

use super::headers::is_token;

/// Which arguments of which tools are repeated: the path of each, and the name of its header.
#[derive(Debug, Default)]
pub(super) struct Mirrors(HashMap<String, Vec<(Vec<String>, String)>>);

impl Mirrors {
    /// Learns from the answer to `tools/list`.
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

    /// The headers of a call, each with the value of its argument, where there is one.
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

/// The marked properties, through properties of properties. What cannot be the name of a header marks nothing.
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
    use serde_json::json;

    use super::*;

    #[test]
    fn marked_arguments_are_found_by_their_paths() {
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
