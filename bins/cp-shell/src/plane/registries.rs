//! The registries of frameworks and specs, counts of all registries, and YAML manifests as JSON.

use std::collections::BTreeMap;

use cp_policy::Row;
use serde_json::{Map, Number, Value, json};
use yaml_rust2::Event;
use yaml_rust2::parser::Parser;
use yaml_rust2::scanner::TScalarStyle;

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

/// The deepest nesting.
const DEEPEST: usize = cp_common::json::MAX_DEPTH;

/// Parses the first document of a text.
fn parse_yaml(text: &str) -> Result<Value, String> {
    let (mut open, mut whole) = (Vec::new(), None);
    let mut parser = Parser::new_from_str(text);
    // Event by event, because a recursive parser would overflow the stack.
    loop {
        let (event, mark) = parser.next_token().map_err(|e| e.to_string())?;
        let value = match event {
            Event::DocumentEnd | Event::StreamEnd => return Ok(whole.unwrap_or_default()),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() > DEEPEST => {
                return Err(format!("line {}: nested too deep", mark.line()));
            }
            // Values that are repeated could make a small file a large value.
            Event::Alias(_) => return Err(format!("line {}: an alias, which manifests cannot have", mark.line())),
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Mapping(Map::new(), None));
                continue;
            }
            Event::Scalar(text, style, _, tag) => {
                let is_text = style != TScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
                if is_text { text.into() } else { plain(&text) }
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(list)) => list.into(),
                Some(Open::Mapping(mapping, _)) => mapping.into(),
                None => continue,
            },
            Event::Nothing | Event::StreamStart | Event::DocumentStart => continue,
        };
        match open.last_mut() {
            None => whole = Some(value),
            Some(Open::List(list)) => list.push(value),
            Some(Open::Mapping(mapping, name)) => match name.take() {
                Some(name) => drop(mapping.insert(name, value)),
                None => *name = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
            },
        }
    }
}

/// A value whose end has not been read.
enum Open {
    List(Vec<Value>),
    /// With the name of the next member.
    Mapping(Map<String, Value>, Option<String>),
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
    fn invalid_yaml_is_an_error() {
        for text in ["a: [1", "a: b: c", "a: *none", "a: &x [1]\nb: *x\n"] {
            assert!(parse_yaml(text).is_err(), "{text}");
        }
        for text in ["[".repeat(300_000), "- ".repeat(300_000), "{a: ".repeat(300_000)] {
            assert!(parse_yaml(&text).is_err(), "without an overflow");
        }
        assert!(parse_yaml(&"[".repeat(DEEPEST + 2)).unwrap_err().contains("too deep"));
    }
}
