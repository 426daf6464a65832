//! `--fields a,b.c`: selects members in the requested order and keeps their values as they were written.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::{Error, Result};

/// Maximum depth of a schema, because a schema can refer to itself.
const DEPTH: usize = 32;

/// The members that `--fields` selects.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    nodes: Vec<Node>,
    /// True if the names select members of each item of a page.
    of_items: bool,
}

/// A member and its selected members; an empty list selects the whole value.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    below: Vec<Node>,
}

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

impl Fields {
    /// Parses dotted names and checks them against the JSON Schema of the output. A closed object has only the members
    /// that its schema lists; an open object accepts every name. For a page, the names select members of its items.
    pub fn of(names: &[String], schema: &Value) -> Result<Self> {
        let mut nodes = Vec::new();
        for name in names {
            if name.split('.').any(str::is_empty) {
                return Err(Error::usage(format!("--fields: `{name}` is not a name"))
                    .hint("write names with dots, separated by commas: a,b.c"));
            }
            add(name, &mut nodes);
        }
        let members = schema["properties"].as_object();
        let Some(page) = members.filter(|members| members.contains_key("items") && members.contains_key("has_more"))
        else {
            check(&nodes, &choices(schema, schema, DEPTH), schema, "")?;
            return Ok(Self { nodes, of_items: false });
        };
        check(&nodes, &choices(&page["items"], schema, DEPTH), schema, "")?;
        let node = |name: &String| {
            let below = if name == "items" { nodes.clone() } else { Vec::new() };
            Node { name: name.clone(), below }
        };
        // The marks of a page are kept if the marked member is.
        let names = page.keys().filter(|name| *name != "_untrusted");
        Ok(Self { nodes: names.map(node).collect(), of_items: true })
    }

    /// Returns the JSON with only the selected members.
    pub fn project(&self, json: &[u8]) -> Vec<u8> {
        let json = std::str::from_utf8(json).unwrap_or_default();
        project(json, &self.nodes).unwrap_or_else(|| json.to_owned()).into_bytes()
    }

    /// Like [`Fields::project`], but one object a line: one line for each item of a page.
    pub fn lines(&self, json: &[u8]) -> Vec<u8> {
        let whole = self.project(json);
        match serde_json::from_slice::<Items<'_>>(&whole).ok().filter(|_| self.of_items) {
            Some(page) => page.items.iter().flat_map(|item| [item.get().as_bytes(), b"\n"].concat()).collect(),
            None => [&whole[..], b"\n"].concat(),
        }
    }
}

fn add(name: &str, nodes: &mut Vec<Node>) {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    match (nodes.iter_mut().find(|node| node.name == first), rest) {
        // The whole value is selected already.
        (Some(node), Some(_)) if node.below.is_empty() => {}
        (Some(node), Some(rest)) => add(rest, &mut node.below),
        (Some(node), None) => node.below.clear(),
        (None, rest) => {
            let mut below = Vec::new();
            if let Some(rest) = rest {
                add(rest, &mut below);
            }
            nodes.push(Node { name: first.to_owned(), below });
        }
    }
}

/// Returns a schema with all that a value of it may match instead: the target of its reference, its choices, and the
/// schema of its elements.
fn choices<'a>(schema: &'a Value, root: &'a Value, depth: usize) -> Vec<&'a Value> {
    let mut all = vec![schema];
    if depth > 0 {
        let target = schema["$ref"].as_str().and_then(|place| root.pointer(&place[1..]));
        let listed = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten();
        let others = target.into_iter().chain(listed).chain(schema.get("items"));
        all.extend(others.flat_map(|other| choices(other, root, depth - 1)));
    }
    all
}

/// True if a value of this schema may have members that the schema does not list.
fn is_open(schema: &Value) -> bool {
    const DESCRIBED: [&str; 8] = ["properties", "enum", "const", "items", "$ref", "anyOf", "oneOf", "allOf"];
    let has_members = match &schema["type"] {
        Value::Array(types) => types.iter().any(|name| name == "object" || name == "array"),
        name => name.is_null() || name == "object" || name == "array",
    };
    match schema.get("additionalProperties") {
        Some(others) => others != false,
        None => schema != false && has_members && !DESCRIBED.iter().any(|name| schema.get(name).is_some()),
    }
}

fn check(nodes: &[Node], schemas: &[&Value], root: &Value, above: &str) -> Result<()> {
    let known: Vec<_> = schemas.iter().filter_map(|schema| schema["properties"].as_object()).flatten().collect();
    for node in nodes {
        let own = known.iter().filter(|(name, _)| **name == node.name);
        let below: Vec<&Value> = own.flat_map(|(_, schema)| choices(schema, root, DEPTH)).collect();
        let path = format!("{above}{}", node.name);
        if !below.is_empty() {
            check(&node.below, &below, root, &format!("{path}."))?;
        } else if !schemas.iter().any(|schema| is_open(schema)) {
            return Err(unknown(&path, &node.name, known.iter().map(|(name, _)| name.as_str())));
        }
    }
    Ok(())
}

fn unknown<'a>(path: &str, name: &str, all: impl Iterator<Item = &'a str>) -> Error {
    let mut known: Vec<&str> = Vec::new();
    for name in all {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let listed =
        if known.is_empty() { "it has no members".to_owned() } else { format!("there are {}", known.join(", ")) };
    Error::usage(format!("no field `{path}`")).with("known", known.clone()).nearest(name, known, &listed)
}

/// Returns an object with only the selected members, or a list of such objects; `None` if the value has no members.
fn project(json: &str, nodes: &[Node]) -> Option<String> {
    if json.trim_start().starts_with('[') {
        let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
        let kept: Vec<String> = elements.into_iter().filter_map(|element| project(element.get(), nodes)).collect();
        return Some(format!("[{}]", kept.join(",")));
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
    let mut kept = Vec::new();
    for node in nodes {
        let Some(value) = members.get(&node.name).map(|value| value.get()) else { continue };
        let value = if node.below.is_empty() { Some(value.to_owned()) } else { project(value, &node.below) };
        kept.extend(value.map(|value| format!("{}:{value}", Value::from(node.name.as_str()))));
    }
    // The marks of untrusted members are kept.
    let is_selected = |name: &str| nodes.iter().any(|node| node.name == name);
    if let Some(marks) = members.get("_untrusted").filter(|_| !is_selected("_untrusted")) {
        let mut marks: Vec<String> = serde_json::from_str(marks.get()).unwrap_or_default();
        marks.retain(|mark| mark.split('/').nth(1).is_some_and(is_selected));
        if !marks.is_empty() {
            kept.push(format!("\"_untrusted\":{}", Value::from(marks)));
        }
    }
    Some(format!("{{{}}}", kept.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Code;
    use serde_json::json;

    fn fields(names: &[&str], schema: &Value) -> Result<Fields> {
        Fields::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), schema)
    }

    fn projected(names: &[&str], json: &str) -> String {
        String::from_utf8(fields(names, &json!(true)).unwrap().project(json.as_bytes())).unwrap()
    }

    #[test]
    fn project_keeps_nesting_requested_order_and_value_text() {
        let json = r#"{"seq":1,"data":{"n":1e400,"m":{"a":1,"b":2},"s":"x"},"e":[{"a":1,"b":2},3,{"a":4}]}"#;
        assert_eq!(projected(&["data.n", "seq", "data.m.b"], json), r#"{"data":{"n":1e400,"m":{"b":2}},"seq":1}"#);
        assert_eq!(projected(&["data.m", "data.m.a"], json), r#"{"data":{"m":{"a":1,"b":2}}}"#);
        assert_eq!(projected(&["data.m.a", "data.m"], json), r#"{"data":{"m":{"a":1,"b":2}}}"#);
        assert_eq!(projected(&["event", "seq.x"], json), "{}");
        assert_eq!(projected(&["e.a", "seq"], json), r#"{"e":[{"a":1},{"a":4}],"seq":1}"#);
    }

    #[test]
    fn project_keeps_untrusted_marks() {
        let json = r#"{"a":"x","b":"y","_untrusted":["/a","/c/d"]}"#;
        assert_eq!(projected(&["a"], json), r#"{"a":"x","_untrusted":["/a"]}"#);
        assert_eq!(projected(&["b"], json), r#"{"b":"y"}"#);
    }

    #[test]
    fn project_of_page_selects_members_of_items() {
        let item = json!({"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}});
        let schema = json!({
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Item"}}, "has_more": {"type": "boolean"}},
            "$defs": {"Item": item},
        });
        let page = br#"{"items":[{"id":"a","n":1},{"id":"b","n":2}],"has_more":false}"#;
        let asked = fields(&["n"], &schema).unwrap();
        assert_eq!(asked.project(page), br#"{"items":[{"n":1},{"n":2}],"has_more":false}"#);
        assert_eq!(asked.lines(page), b"{\"n\":1}\n{\"n\":2}\n");
        assert_eq!(fields(&["has_more"], &schema).unwrap_err().code(), Code::Usage);
    }

    #[test]
    fn unknown_member_of_closed_object_fails_with_known_names() {
        let schema = json!({"type": "object", "properties": {
            "seq": {"type": "integer"}, "data": {"type": "object"}, "any": true, "message": {"type": ["string", "object"]},
            "one": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"deep": {"type": "string"}}}]},
        }});
        let refused = fields(&["sec"], &schema).unwrap_err();
        assert_eq!(refused.code(), Code::Usage);
        assert!(refused.hint_text().unwrap().contains("`seq`"));
        assert_eq!(refused.details()["known"], json!(["seq", "data", "any", "message", "one"]));
        for open in ["data.x.y", "any.x", "message.blob", "one.deep"] {
            assert!(fields(&[open], &schema).is_ok(), "{open}");
        }
        for closed in ["seq.x", "one.deeper", "one.deep.x", "", "a..b", "seq."] {
            assert_eq!(fields(&[closed], &schema).unwrap_err().code(), Code::Usage, "{closed}");
        }
    }
}
