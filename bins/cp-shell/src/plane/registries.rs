//! The registries of frameworks and specs, counts of all registries, and YAML manifests as JSON.

use std::collections::BTreeMap;
use std::str::Chars;

use cp_common::Result;
use cp_policy::Row;
use serde_json::{Map, Number, Value, json};
use yaml_rust2::parser::Parser;
use yaml_rust2::scanner::TScalarStyle;
use yaml_rust2::{Event, Yaml};

use crate::plane::files::text;
use crate::plane::packages::is_name;
use crate::plane::{Plane, fault};

pub(super) const FRAMEWORKS: &str = "registries/frameworks_registry.csv";
pub(super) const SPECS: &str = "registries/specs_registry.csv";
/// The owners of files.
pub(super) const OWNERSHIP: &str = "registries/file_ownership.csv";
/// The spec of each artifact, if the tree has this registry.
pub(super) const ARTIFACTS: &str = "registries/control_plane_registry.csv";

/// `list_frameworks`
pub(super) fn list_frameworks(plane: &Plane) -> Result<Value> {
    let frameworks: Vec<Value> = plane.table(FRAMEWORKS)?.rows.iter().map(Row::to_value).collect();
    Ok(json!({"frameworks": frameworks, "count": frameworks.len()}))
}

/// `list_specs`
pub(super) fn list_specs(plane: &Plane, framework: Option<&str>) -> Result<Value> {
    let table = plane.table(SPECS)?;
    let wanted = table.rows.iter().filter(|row| framework.is_none_or(|id| row.get("framework_id") == id));
    let specs: Vec<Value> = wanted.map(Row::to_value).collect();
    Ok(json!({"specs": specs, "count": specs.len(), "filter": framework.map(|id| json!({"framework_id": id}))}))
}

/// `spec_info`
pub(super) fn spec_info(plane: &Plane, id: &str) -> Result<Value> {
    let manifest = spec_manifest(plane, id)?.ok_or_else(|| {
        fault("SPEC_NOT_FOUND", format!("the spec `{id}` has no manifest"))
            .with("spec_id", id)
            .hint("`list_specs` lists the registered specs")
    })?;
    Ok(json!({"spec_id": id, "manifest": manifest}))
}

/// The manifest of a spec, if any.
pub(super) fn spec_manifest(plane: &Plane, id: &str) -> Result<Option<Value>> {
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
pub(super) fn stats(plane: &Plane) -> Result<Value> {
    let (mut total, mut registries) = (0, 0);
    let (mut by_status, mut by_registry) = (BTreeMap::<String, usize>::new(), BTreeMap::new());
    for name in plane.names("registries")? {
        if std::path::Path::new(&name).extension().is_none_or(|kind| kind != "csv") {
            continue;
        }
        let table = plane.table(std::path::Path::new("registries").join(&name))?;
        registries += 1;
        total += table.rows.len();
        by_registry.insert(name, table.rows.len());
        for row in &table.rows {
            let status = Some(row.get("status")).filter(|status| !status.is_empty()).unwrap_or("unknown");
            *by_status.entry(status.to_owned()).or_default() += 1;
        }
    }
    Ok(json!({"registries": registries, "total_items": total, "by_status": by_status, "by_registry": by_registry}))
}

/// The deepest nesting.
const DEEPEST: usize = cp_common::json::MAX_DEPTH;

/// Parses the first document of a text.
fn parse_yaml(text: &str) -> Result<Value, String> {
    let mut parser = Parser::new_from_str(text);
    let document = node(&mut parser, 0)?;
    parser.next_token().map_err(|e| e.to_string())?;
    Ok(document)
}

/// Parses a value from the events of the parser, because the reader of trees has no limit of depth.
fn node(parser: &mut Parser<Chars<'_>>, depth: usize) -> Result<Value, String> {
    let (event, mark) = parser.next_token().map_err(|e| e.to_string())?;
    match event {
        _ if depth > DEEPEST => Err(format!("line {}: nested too deep", mark.line())),
        // Values that are repeated could make a small file a large value.
        Event::Alias(_) => Err(format!("line {}: an alias, which manifests cannot have", mark.line())),
        Event::Scalar(text, style, _, tag) => {
            let is_text = style != TScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
            Ok(if is_text { text.into() } else { plain(&text) })
        }
        Event::SequenceStart(..) => {
            let mut list = Vec::new();
            while !ends(parser, &Event::SequenceEnd)? {
                list.push(node(parser, depth + 1)?);
            }
            Ok(list.into())
        }
        Event::MappingStart(..) => {
            let mut mapping = Map::new();
            while !ends(parser, &Event::MappingEnd)? {
                let name = node(parser, depth + 1)?;
                let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
                mapping.insert(name, node(parser, depth + 1)?);
            }
            Ok(mapping.into())
        }
        Event::DocumentEnd | Event::StreamEnd => Ok(Value::Null),
        _ => node(parser, depth),
    }
}

/// Consumes the next event if it is this one.
fn ends(parser: &mut Parser<Chars<'_>>, end: &Event) -> Result<bool, String> {
    let is_end = parser.peek().map_err(|e| e.to_string())?.0 == *end;
    if is_end {
        parser.next_token().map_err(|e| e.to_string())?;
    }
    Ok(is_end)
}

/// The value of a plain scalar.
fn plain(text: &str) -> Value {
    match Yaml::from_str(text) {
        _ if matches!(text, "Null" | "NULL") => Value::Null,
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => value.into(),
        Yaml::Integer(value) => value.into(),
        real @ Yaml::Real(_) => real.as_f64().and_then(Number::from_f64).map_or_else(|| text.into(), Value::Number),
        _ => text.into(),
    }
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
