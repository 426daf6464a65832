//! JSON Schemas that providers accept. Unsupported keywords are moved to the description, so that every value that is valid under the original
//! schema is valid under the schema that is sent. If the provider accepts only closed objects, an object without a rule for further members is
//! closed. A schema that cannot be rewritten like this is sent unchanged.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The rules of a provider.
struct Rules {
    /// Keywords that it supports besides the common ones, separated by spaces.
    more: &'static str,
    objects: Objects,
}

/// The objects that a provider accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Objects {
    Any,
    /// Objects without further members.
    Closed,
    /// Objects that the schema closes, with all members required.
    Complete,
}

/// Keywords that all providers support.
const ALL: &str =
    "$defs $ref additionalProperties anyOf description enum format items minItems properties required title type";
const ANTHROPIC: Rules = Rules { more: "const", objects: Objects::Closed };
const OPENAI: Rules = Rules {
    more: "const exclusiveMaximum exclusiveMinimum maxItems maximum minimum multipleOf pattern",
    objects: Objects::Complete,
};
const GEMINI: Rules =
    Rules { more: "maxItems maximum minimum oneOf prefixItems propertyOrdering", objects: Objects::Any };

/// Formats that providers support; `OpenAI` does not support the last one.
const FORMATS: &str = "date date-time duration email hostname ipv4 ipv6 time uuid uri";
/// Annotations, which are dropped.
const NOTES: &str = "$comment $schema default deprecated description examples readOnly title writeOnly";
/// Keywords that permit members besides `properties`.
const OPENING: &str =
    "additionalProperties allOf anyOf dependentSchemas else if oneOf patternProperties then unevaluatedProperties";

/// The schema for Anthropic.
pub(super) fn anthropic(schema: &Value) -> Value {
    rewritten(schema, &ANTHROPIC).unwrap_or_else(|| schema.clone())
}

/// The schema for strict mode of `OpenAI`; `None` if that is not possible.
pub(super) fn openai(schema: &Value) -> Option<Value> {
    rewritten(schema, &OPENAI).filter(|schema| schema["type"] == "object" && schema.get("anyOf").is_none())
}

/// The schema for Gemini.
pub(super) fn gemini(schema: &Value) -> Value {
    rewritten(schema, &GEMINI).unwrap_or_else(|| schema.clone())
}

/// True if a list has a word.
fn has_word(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| known == word)
}

fn rewritten(schema: &Value, rules: &Rules) -> Option<Value> {
    let members = match schema {
        Value::Object(members) => members,
        Value::Bool(_) if rules.objects == Objects::Any => return Some(schema.clone()),
        _ => return None,
    };
    let has = |name: &str| members.contains_key(name);
    // These keywords can change the target of references.
    if ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"].into_iter().any(has)
        || (has("$defs") && has("definitions"))
    {
        return None;
    }
    let mut sent = Map::new();
    if let Some(parts) = members.get("$defs").or_else(|| members.get("definitions")) {
        sent.insert("$defs".to_owned(), named(parts, rules)?);
    }
    if let Some(reference) = members.get("$ref") {
        // A reference may not have siblings.
        sent.insert("$ref".to_owned(), definition(reference.as_str()?)?.into());
        return Some(sent.into());
    }
    let mut unsaid = Map::new();
    for (name, value) in members.iter().filter(|(name, _)| !["$defs", "definitions"].contains(&name.as_str())) {
        let is_known = has_word(ALL, name) || has_word(rules.more, name);
        let kept = match name.as_str() {
            "oneOf" if !is_known && !has("anyOf") => Some(("anyOf", listed(value, rules)?)),
            "const" if !is_known && !has("enum") && (value.is_string() || value.is_number()) => {
                Some(("enum", json!([value])))
            }
            name if !is_known || !is_kept(name, value, members, rules) => None,
            "properties" => Some(("properties", named(value, rules)?)),
            name @ ("anyOf" | "oneOf" | "prefixItems") => Some((name, listed(value, rules)?)),
            name @ ("items" | "additionalProperties") if !value.is_boolean() => Some((name, rewritten(value, rules)?)),
            name => Some((name, value.clone())),
        };
        match kept {
            Some((name, value)) => drop(sent.insert(name.to_owned(), value)),
            None if has_word(NOTES, name) => {}
            None => drop(unsaid.insert(name.clone(), value.clone())),
        }
    }
    if rules.objects == Objects::Complete && !sent.contains_key("type") {
        // `enum` and `const` need a type in strict mode.
        sent.extend(kinds(&sent).map(|kinds| ("type".to_owned(), kinds)));
    }
    let is_typed = ["type", "anyOf", "enum", "const"].iter().any(|name| sent.contains_key(*name));
    if rules.objects != Objects::Any && (!is_typed || !is_taken(&mut sent, members, rules.objects)) {
        return None;
    }
    if !unsaid.is_empty() {
        let before = sent.get("description").and_then(Value::as_str);
        let before = before.map_or_else(String::new, |text| format!("{text}\n\n"));
        sent.insert("description".to_owned(), format!("{before}{}", Value::from(unsaid)).into());
    }
    Some(sent.into())
}

/// True if a supported keyword can be sent with this value.
fn is_kept(name: &str, value: &Value, members: &Map<String, Value>, rules: &Rules) -> bool {
    match name {
        // Without `prefixItems` they would apply to the whole array.
        "items" => !value.is_array() && (!members.contains_key("prefixItems") || has_word(rules.more, "prefixItems")),
        // It excludes members that match a pattern.
        "additionalProperties" => !members.contains_key("patternProperties"),
        "format" => {
            value.as_str().is_some_and(|format| has_word(FORMATS, format))
                && (value != "uri" || rules.objects != Objects::Complete)
        }
        "pattern" => value.as_str().is_some_and(|pattern| !pattern.contains("(?")),
        "minItems" => rules.objects != Objects::Closed || value.as_f64().is_some_and(|least| least <= 1.0),
        "enum" => {
            value.as_array().is_some_and(|values| values.iter().all(|value| !value.is_object() && !value.is_array()))
        }
        "const" => !value.is_object() && !value.is_array(),
        _ => true,
    }
}

/// The types of the values in `enum` or `const`.
fn kinds(schema: &Map<String, Value>) -> Option<Value> {
    let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let values = listed.or_else(|| schema.get("const").map(std::slice::from_ref))?;
    let kind = |value: &Value| match value {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds: BTreeSet<&str> = values.iter().map(kind).collect();
    Some(kinds.into_iter().collect())
}

fn named(schemas: &Value, rules: &Rules) -> Option<Value> {
    let each = schemas.as_object()?.iter().map(|(name, schema)| Some((name.clone(), rewritten(schema, rules)?)));
    each.collect::<Option<Map<_, _>>>().map(Value::Object)
}

fn listed(schemas: &Value, rules: &Rules) -> Option<Value> {
    schemas.as_array()?.iter().map(|schema| rewritten(schema, rules)).collect()
}

/// Rewrites a reference to a definition; `None` for other references.
fn definition(reference: &str) -> Option<String> {
    let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"));
    match name {
        Some(name) if !name.contains('/') => Some(format!("#/$defs/{name}")),
        _ => (reference == "#").then(|| reference.to_owned()),
    }
}

/// True if the provider accepts the schema of an object. Closes the object if the provider requires that.
fn is_taken(sent: &mut Map<String, Value>, given: &Map<String, Value>, objects: Objects) -> bool {
    let is = |kind: &Value| kind == "object";
    let kind = sent.get("type");
    if !kind.is_some_and(|kind| is(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is)))
        && !["properties", "required", "additionalProperties"].iter().any(|name| sent.contains_key(*name))
    {
        return true;
    }
    let names: Vec<&String> =
        sent.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).collect();
    let required: Vec<&Value> = sent.get("required").and_then(Value::as_array).into_iter().flatten().collect();
    if sent.get("additionalProperties") == Some(&Value::Bool(false)) {
        return objects != Objects::Complete || names.iter().all(|name| required.iter().any(|other| *other == *name));
    }
    let can_close = objects == Objects::Closed
        && !given.keys().any(|name| has_word(OPENING, name))
        && !names.is_empty()
        && required.iter().all(|name| names.iter().any(|other| *name == *other));
    if can_close {
        sent.insert("additionalProperties".to_owned(), false.into());
    }
    can_close
}
