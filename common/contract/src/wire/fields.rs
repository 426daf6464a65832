//! `--fields a,b.c`: selects members in the requested order and keeps their values as they were written.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::spelling::nearest;
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
        let members = &schema["properties"];
        let of_items = members["items"].is_object() && members["has_more"].is_object();
        let mut known = Known::default();
        known.read(if of_items { &members["items"] } else { schema }, schema, DEPTH);
        known.check(&nodes, schema, "")?;
        Ok(Self { nodes, of_items })
    }

    /// Returns the JSON with only the selected members.
    pub fn project(&self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.of_items {
            project(json, &self.nodes, &mut out);
            return out;
        }
        for (name, value) in members(json) {
            out.push(if out.is_empty() { b'{' } else { b',' });
            write_name(&name, &mut out);
            if name != "items" || !project(value.get().as_bytes(), &self.nodes, &mut out) {
                out.extend_from_slice(value.get().as_bytes());
            }
        }
        out.push(b'}');
        out
    }

    /// Like [`Fields::project`], but one object a line: one line for each item of a page.
    pub fn lines(&self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.of_items {
            project(json, &self.nodes, &mut out);
            out.push(b'\n');
            return out;
        }
        let items = members(json).into_iter().find(|(name, _)| name == "items").map(|(_, value)| value);
        for item in items.into_iter().flat_map(elements) {
            project(item.get().as_bytes(), &self.nodes, &mut out);
            out.push(b'\n');
        }
        out
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
            let mut node = Node { name: first.to_owned(), below: Vec::new() };
            if let Some(rest) = rest {
                add(rest, &mut node.below);
            }
            nodes.push(node);
        }
    }
}

/// The members that a schema describes.
#[derive(Default)]
struct Known<'a> {
    members: Vec<(&'a str, &'a Value)>,
    /// True if other members are possible.
    is_open: bool,
}

impl<'a> Known<'a> {
    fn read(&mut self, schema: &'a Value, root: &'a Value, depth: usize) {
        let Some(object) = schema.as_object() else {
            self.is_open |= schema == &Value::Bool(true);
            return;
        };
        if depth == 0 {
            self.is_open = true;
            return;
        }
        let mut is_described = object.contains_key("enum") || object.contains_key("const");
        if let Some(target) = object.get("$ref").and_then(Value::as_str).and_then(|place| root.pointer(&place[1..])) {
            is_described = true;
            self.read(target, root, depth - 1);
        }
        for choices in ["anyOf", "oneOf", "allOf"].iter().filter_map(|name| object.get(*name)?.as_array()) {
            is_described = true;
            for choice in choices {
                self.read(choice, root, depth - 1);
            }
        }
        if let Some(items) = object.get("items") {
            is_described = true;
            self.read(items, root, depth - 1);
        }
        if let Some(members) = object.get("properties").and_then(Value::as_object) {
            is_described = true;
            self.members.extend(members.iter().map(|(name, schema)| (name.as_str(), schema)));
        }
        let is_type = |name: &str| match &object.get("type") {
            Some(Value::String(one)) => one == name,
            Some(Value::Array(all)) => all.iter().any(|one| one == name),
            _ => false,
        };
        self.is_open |= object.get("additionalProperties").is_some_and(|other| other != &Value::Bool(false))
            || !is_described && (!object.contains_key("type") || is_type("object") || is_type("array"));
    }

    fn check(&self, nodes: &[Node], root: &Value, above: &str) -> Result<()> {
        for node in nodes {
            let mut below = Known::default();
            let mut is_known = false;
            for (_, schema) in self.members.iter().filter(|(name, _)| *name == node.name) {
                is_known = true;
                below.read(schema, root, DEPTH);
            }
            let name = format!("{above}{}", node.name);
            if is_known {
                below.check(&node.below, root, &format!("{name}."))?;
            } else if !self.is_open {
                return Err(self.unknown(&name, &node.name));
            }
        }
        Ok(())
    }

    fn unknown(&self, path: &str, name: &str) -> Error {
        let mut known: Vec<&str> = Vec::new();
        for (name, _) in &self.members {
            if !known.contains(name) {
                known.push(name);
            }
        }
        let error = Error::usage(format!("no field `{path}`")).with("known", known.clone());
        if known.is_empty() {
            return error.hint("it has no members");
        }
        error.hint(match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? there are {}", known.join(", ")),
            None => format!("there are {}", known.join(", ")),
        })
    }
}

/// Appends an object with only the selected members, or a list of such objects. Returns false if the value has no
/// members.
fn project(json: &[u8], nodes: &[Node], out: &mut Vec<u8>) -> bool {
    match json.trim_ascii_start().first() {
        Some(b'{') => {}
        Some(b'[') => {
            let list = serde_json::from_slice::<Vec<&RawValue>>(json).unwrap_or_default();
            out.push(b'[');
            let mut is_first = true;
            for element in list {
                let before = out.len();
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                if !project(element.get().as_bytes(), nodes, out) {
                    is_first = out.len() == before;
                    out.truncate(before);
                }
            }
            out.push(b']');
            return true;
        }
        _ => return false,
    }
    let members = members(json);
    let value_of =
        |name: &str| members.iter().find(|(found, _)| found == name).map(|(_, value)| value.get().as_bytes());
    out.push(b'{');
    let mut separator: &[u8] = b"";
    for node in nodes {
        let Some(value) = value_of(&node.name) else { continue };
        let before = out.len();
        out.extend_from_slice(separator);
        write_name(&node.name, out);
        if node.below.is_empty() {
            out.extend_from_slice(value);
        } else if !project(value, &node.below, out) {
            out.truncate(before);
            continue;
        }
        separator = b",";
    }
    // The marks of untrusted members are kept.
    let marks: Vec<String> = match value_of("_untrusted") {
        Some(marks) if !nodes.iter().any(|node| node.name == "_untrusted") => {
            serde_json::from_slice(marks).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let is_kept =
        |mark: &String| mark.split('/').nth(1).is_some_and(|first| nodes.iter().any(|node| node.name == first));
    let kept: Vec<&String> = marks.iter().filter(|mark| is_kept(mark)).collect();
    if !kept.is_empty() {
        out.extend_from_slice(separator);
        out.extend_from_slice(b"\"_untrusted\":");
        out.extend(serde_json::to_vec(&kept).unwrap_or_default());
    }
    out.push(b'}');
    true
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    cp_json::string(name, out);
    out.push(b':');
}

fn elements(list: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(list.get()).unwrap_or_default()
}

/// Returns the members of an object in their order; empty if the JSON is not an object.
pub(super) fn members(json: &[u8]) -> Vec<(String, &RawValue)> {
    struct Members<'a>(Vec<(String, &'a RawValue)>);

    impl<'de> Deserialize<'de> for Members<'de> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Reader)
        }
    }

    struct Reader;

    impl<'de> Visitor<'de> for Reader {
        type Value = Members<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(Members(members))
        }
    }

    serde_json::from_slice::<Members<'_>>(json).map(|members| members.0).unwrap_or_default()
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
