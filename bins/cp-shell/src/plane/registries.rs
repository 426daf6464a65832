//! The registries of frameworks and specs, counts of all registries, and YAML manifests as JSON.

use std::collections::{BTreeMap, HashMap};

use cp_policy::Row;
use serde_json::{Map, Number, Value, json};
use yaml_rust2::Event;
use yaml_rust2::parser::Parser;
use yaml_rust2::scanner::{Marker, TScalarStyle};

use crate::plane::files::text;
use crate::plane::packages::is_name;
use crate::plane::{Failure, Plane};

pub(super) const FRAMEWORKS: &str = "registries/frameworks_registry.csv";
pub(super) const SPECS: &str = "registries/specs_registry.csv";
/// The owners of files.
pub(super) const OWNERSHIP: &str = "registries/file_ownership.csv";
/// The spec of each artifact, if the tree has this registry.
pub(super) const ARTIFACTS: &str = "registries/control_plane_registry.csv";

/// `list_frameworks`
pub(super) fn list_frameworks(plane: &Plane) -> Result<Value, Failure> {
    let frameworks: Vec<Value> = plane.table(FRAMEWORKS)?.rows().map(Row::to_value).collect();
    Ok(json!({"frameworks": frameworks, "count": frameworks.len()}))
}

/// `list_specs`
pub(super) fn list_specs(plane: &Plane, framework: Option<&str>) -> Result<Value, Failure> {
    let table = plane.table(SPECS)?;
    let wanted = table.rows().filter(|row| framework.is_none_or(|id| row.get("framework_id") == id));
    let specs: Vec<Value> = wanted.map(Row::to_value).collect();
    Ok(json!({"specs": specs, "count": specs.len(), "filter": framework.map(|id| json!({"framework_id": id}))}))
}

/// `spec_info`
pub(super) fn spec_info(plane: &Plane, id: &str) -> Result<Value, Failure> {
    let manifest = spec_manifest(plane, id)?.ok_or_else(|| {
        Failure::new("SPEC_NOT_FOUND", format!("the spec `{id}` has no manifest"))
            .with("spec_id", id)
            .hint("`list_specs` lists the registered specs")
    })?;
    Ok(json!({"spec_id": id, "manifest": manifest}))
}

/// The manifest of a spec, if any.
pub(super) fn spec_manifest(plane: &Plane, id: &str) -> Result<Option<Value>, Failure> {
    if !is_name(id) {
        return Ok(None);
    }
    let file = std::path::Path::new("specs").join(id).join("manifest.yaml");
    plane.parsed(&file, |bytes| match parse_yaml(text(bytes)?) {
        Ok(manifest @ Value::Object(_)) => Ok(manifest),
        Ok(_) => Err("not a mapping".to_owned()),
        Err(reason) => Err(format!("not valid YAML: {reason}")),
    })
}

/// The number of items in each registry.
pub(super) fn stats(plane: &Plane) -> Result<Value, Failure> {
    let (mut total, mut registries) = (0, 0);
    let (mut by_status, mut by_registry) = (BTreeMap::<String, usize>::new(), BTreeMap::new());
    for name in plane.names("registries")? {
        if std::path::Path::new(&name).extension().is_none_or(|kind| kind != "csv") {
            continue;
        }
        let table = plane.table(std::path::Path::new("registries").join(&name))?;
        registries += 1;
        total += table.len();
        by_registry.insert(name, table.len());
        for (status, count) in table.counts("status") {
            let status = if status.is_empty() { "unknown".to_owned() } else { status };
            *by_status.entry(status).or_default() += count;
        }
    }
    Ok(json!({"registries": registries, "total_items": total, "by_status": by_status, "by_registry": by_registry}))
}

/// The largest number of values in a document.
const MOST: usize = 100_000;
/// The deepest nesting.
const DEEPEST: usize = cp_common::json::MAX_DEPTH;

/// Parses the first document of a text. Values repeated by aliases are counted, so that a small file cannot become a large value.
fn parse_yaml(text: &str) -> Result<Value, String> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    // Event by event, because a recursive parser would overflow the stack.
    while builder.fault.is_none() {
        match parser.next_token().map_err(|e| e.to_string())? {
            (Event::DocumentEnd | Event::StreamEnd, _) => break,
            (event, mark) => builder.take(event, mark),
        }
    }
    match builder.fault {
        Some(fault) => Err(fault),
        None => Ok(builder.whole.unwrap_or_default()),
    }
}

/// A value whose end has not been read.
enum Open {
    List(Vec<Value>),
    Mapping(Map<String, Value>, Option<String>),
}

#[derive(Default)]
struct Builder {
    open: Vec<(Open, usize)>,
    anchors: HashMap<usize, Value>,
    whole: Option<Value>,
    count: usize,
    fault: Option<String>,
}

impl Builder {
    fn place(&mut self, value: Value, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.whole = Some(value),
            Some((Open::List(list), _)) => list.push(value),
            Some((Open::Mapping(mapping, name), _)) => match name.take() {
                Some(name) => {
                    mapping.insert(name, value);
                }
                None => *name = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
            },
        }
    }

    fn counted(&mut self, values: usize) -> bool {
        self.count += values;
        if self.count > MOST {
            self.fault = Some(format!("more than {MOST} values"));
        }
        self.fault.is_none()
    }

    fn take(&mut self, event: Event, mark: Marker) {
        if !self.counted(1) {
            return;
        }
        if self.open.len() > DEEPEST {
            self.fault = Some(format!("line {}: nested too deep", mark.line()));
            return;
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = style != TScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
                self.place(if is_text { text.into() } else { plain(&text) }, anchor);
            }
            Event::SequenceStart(anchor, _) => self.open.push((Open::List(Vec::new()), anchor)),
            Event::MappingStart(anchor, _) => self.open.push((Open::Mapping(Map::new(), None), anchor)),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((open, anchor)) = self.open.pop() {
                    let value = match open {
                        Open::List(list) => list.into(),
                        Open::Mapping(mapping, _) => mapping.into(),
                    };
                    self.place(value, anchor);
                }
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(value) => {
                    let (value, size) = (value.clone(), size(value));
                    if self.counted(size) {
                        self.place(value, 0);
                    }
                }
                None => self.fault = Some(format!("line {}: an alias of a value that is not complete", mark.line())),
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart | Event::DocumentEnd => {}
        }
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(mapping) => 1 + mapping.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// The value of a plain scalar by the core schema.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let radix =
        |prefix: &str, base| text.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, base).ok());
    let number = text.strip_prefix('+').unwrap_or(text);
    let looks_like_one =
        number.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'))
            && number.bytes().any(|byte| byte.is_ascii_digit());
    radix("0x", 16)
        .or_else(|| radix("0o", 8))
        .or_else(|| number.parse::<i64>().ok())
        .map(Number::from)
        .or_else(|| number.parse::<f64>().ok().filter(|_| looks_like_one).and_then(Number::from_f64))
        .map_or_else(|| text.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_manifest_becomes_json() {
        let text = "spec_id: SPEC-A-001\nversion: 1.0.0\nassets: [a, 'b']\ninterfaces:\n  - name: cli\n    description: >\n      two\n      lines\nacceptance:\n  tests: []\n  count: 3\n  share: 0.5\n  on: yes\nnothing: ~\nday: 2026-02-03\nquoted: \"7\"\n";
        assert_eq!(
            parse_yaml(text).unwrap(),
            json!({"spec_id": "SPEC-A-001", "version": "1.0.0", "assets": ["a", "b"],
                "interfaces": [{"name": "cli", "description": "two lines\n"}],
                "acceptance": {"tests": [], "count": 3, "share": 0.5, "on": "yes"},
                "nothing": null, "day": "2026-02-03", "quoted": "7"})
        );
    }

    #[test]
    fn yaml_aliases_are_limited() {
        assert_eq!(parse_yaml("a: &x [1]\nb: *x\n").unwrap(), json!({"a": [1], "b": [1]}));
        let level =
            |level: usize| format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(","));
        let bomb: String =
            ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned()].into_iter().chain((1..12).map(level)).collect();
        assert!(parse_yaml(&bomb).unwrap_err().contains("more than"));
    }

    #[test]
    fn deep_yaml_is_refused_without_overflow() {
        for text in ["[".repeat(300_000), "- ".repeat(300_000), "{a: ".repeat(300_000)] {
            assert!(parse_yaml(&text).is_err());
        }
    }

    #[test]
    fn invalid_yaml_is_an_error() {
        assert!(parse_yaml("a: [1").is_err());
        assert!(parse_yaml("a: b: c").is_err());
        assert!(parse_yaml("a: *none").is_err());
    }
}
