//! A JSON Schema as each provider takes it. What a provider does not know is left out and said in the description, so that whatever is
//! valid under the schema that was given is valid under the one that is sent. An object whose other members are not mentioned is closed
//! where the provider takes no other. What cannot be rewritten so is sent as it was given.

use serde_json::{Map, Value, json};

/// What a provider takes.
struct Rules {
    /// The keywords that it knows.
    keywords: &'static [&'static str],
    /// The formats that it knows, where it refuses others.
    formats: &'static [&'static str],
    objects: Objects,
}

/// What a provider takes for an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Objects {
    Any,
    /// One without other members than those that are named.
    Closed,
    /// One that was closed by who wrote the schema, and has all of its members.
    Complete,
}

const FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

const ANTHROPIC: Rules = Rules {
    keywords: &[
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "description",
        "enum",
        "format",
        "items",
        "minItems",
        "properties",
        "required",
        "title",
        "type",
    ],
    formats: &FORMATS,
    objects: Objects::Closed,
};

const OPENAI: Rules = Rules {
    keywords: &[
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    ],
    // All but `uri`.
    formats: &["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"],
    objects: Objects::Complete,
};

const GEMINI: Rules = Rules {
    keywords: &[
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "oneOf",
        "prefixItems",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    ],
    formats: &FORMATS,
    objects: Objects::Any,
};

/// Keywords that say nothing of what is valid, and are left out without a word.
const NOTES: [&str; 9] =
    ["$comment", "$schema", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"];

/// Keywords by which an object may have members that its `properties` do not name.
const OPENING: [&str; 9] =
    ["allOf", "anyOf", "dependentSchemas", "else", "if", "oneOf", "patternProperties", "then", "unevaluatedProperties"];

/// The schema as Anthropic takes it.
pub(super) fn anthropic(schema: &Value) -> Value {
    rewritten(schema, &ANTHROPIC).unwrap_or_else(|| schema.clone())
}

/// The schema as `OpenAI` can keep to it strictly; none of one that it cannot.
pub(super) fn openai(schema: &Value) -> Option<Value> {
    rewritten(schema, &OPENAI).filter(|schema| schema["type"] == "object" && schema.get("anyOf").is_none())
}

/// The schema as Gemini takes it.
pub(super) fn gemini(schema: &Value) -> Value {
    rewritten(schema, &GEMINI).unwrap_or_else(|| schema.clone())
}

fn rewritten(schema: &Value, rules: &Rules) -> Option<Value> {
    let members = match schema {
        Value::Object(members) => unwrapped(members)?,
        Value::Bool(_) if rules.objects == Objects::Any => return Some(schema.clone()),
        _ => return None,
    };
    // With these a reference may lead anywhere.
    if ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"]
        .iter()
        .any(|name| members.contains_key(*name))
    {
        return None;
    }
    let mut sent = Map::new();
    match (members.get("$defs"), members.get("definitions")) {
        (Some(_), Some(_)) => return None,
        (Some(parts), None) | (None, Some(parts)) => drop(sent.insert("$defs".to_owned(), named(parts, rules)?)),
        (None, None) => {}
    }
    if let Some(reference) = members.get("$ref") {
        // Beside a reference nothing may stand.
        sent.insert("$ref".to_owned(), definition(reference.as_str()?)?.into());
        return Some(sent.into());
    }
    let mut unsaid = Map::new();
    for (name, value) in members.iter().filter(|(name, _)| !["$defs", "definitions"].contains(&name.as_str())) {
        match taken(name, value, &members, rules)? {
            Some((name, value)) => drop(sent.insert(name.to_owned(), value)),
            None if NOTES.contains(&name.as_str()) => {}
            None => drop(unsaid.insert(name.clone(), value.clone())),
        }
    }
    if rules.objects != Objects::Any && !["type", "anyOf", "enum", "const"].iter().any(|name| sent.contains_key(*name))
    {
        return None;
    }
    if is_object(&sent) && !is_taken(&mut sent, &members, rules.objects) {
        return None;
    }
    if !unsaid.is_empty() {
        let known =
            sent.get("description").and_then(Value::as_str).map_or_else(String::new, |text| format!("{text}\n\n"));
        sent.insert("description".to_owned(), format!("{known}{}", Value::from(unsaid)).into());
    }
    Some(sent.into())
}

/// The members of a schema, and of the one schema in its `allOf` where nothing else stands beside that.
fn unwrapped(members: &Map<String, Value>) -> Option<Map<String, Value>> {
    let Some([Value::Object(only)]) = members.get("allOf").and_then(Value::as_array).map(Vec::as_slice) else {
        return Some(members.clone());
    };
    let is_beside = |name: &String| NOTES.contains(&name.as_str()) || ["$defs", "definitions"].contains(&name.as_str());
    if !members.keys().all(|name| name == "allOf" || is_beside(name)) {
        return Some(members.clone());
    }
    let mut joined = only.clone();
    for (name, value) in members.iter().filter(|(name, _)| *name != "allOf") {
        if joined.insert(name.clone(), value.clone()).is_some() && !NOTES.contains(&name.as_str()) {
            return None;
        }
    }
    unwrapped(&joined)
}

/// A keyword as it is sent; none where it is not, and nothing at all where the whole schema cannot be.
#[expect(clippy::option_option, reason = "the one says that the keyword is left out, the other that the schema is")]
fn taken<'a>(
    name: &'a str,
    value: &Value,
    members: &Map<String, Value>,
    rules: &Rules,
) -> Option<Option<(&'a str, Value)>> {
    let has = |name: &str| members.contains_key(name);
    let is_known = |name: &str| rules.keywords.contains(&name);
    let is_primitive = |value: &Value| !value.is_object() && !value.is_array();
    let as_given = || (name, value.clone());
    Some(match name {
        "oneOf" if !is_known(name) && !has("anyOf") => Some(("anyOf", listed(value, rules)?)),
        "const" if !is_known(name) && !has("enum") && (value.is_string() || value.is_number()) => {
            Some(("enum", json!([value])))
        }
        _ if !is_known(name) => None,
        "properties" => Some((name, named(value, rules)?)),
        "anyOf" | "oneOf" | "prefixItems" => Some((name, listed(value, rules)?)),
        // Without what stands before them the items would be those of the whole array.
        "items" if value.is_array() || (has("prefixItems") && !is_known("prefixItems")) => None,
        "items" => Some((name, rewritten(value, rules)?)),
        // It speaks of those members that no pattern names.
        "additionalProperties" if has("patternProperties") => None,
        "additionalProperties" => {
            Some((name, if value.is_boolean() { value.clone() } else { rewritten(value, rules)? }))
        }
        "format" => value.as_str().filter(|format| rules.formats.contains(format)).map(|_| as_given()),
        "pattern" => value.as_str().filter(|pattern| !pattern.contains("(?")).map(|_| as_given()),
        "minItems" if rules.objects == Objects::Closed && value.as_f64().is_some_and(|least| least > 1.0) => None,
        "enum" | "const" => {
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            values.iter().all(is_primitive).then(as_given)
        }
        _ => Some(as_given()),
    })
}

fn named(schemas: &Value, rules: &Rules) -> Option<Value> {
    let each = schemas.as_object()?.iter().map(|(name, schema)| Some((name.clone(), rewritten(schema, rules)?)));
    each.collect::<Option<Map<_, _>>>().map(Value::Object)
}

fn listed(schemas: &Value, rules: &Rules) -> Option<Value> {
    schemas.as_array()?.iter().map(|schema| rewritten(schema, rules)).collect()
}

/// A reference to a definition as it is spelt now; none that leads elsewhere.
fn definition(reference: &str) -> Option<String> {
    let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"));
    match name {
        Some(name) if !name.contains('/') => Some(format!("#/$defs/{name}")),
        _ => (reference == "#").then(|| reference.to_owned()),
    }
}

fn is_object(schema: &Map<String, Value>) -> bool {
    let is = |kind: &Value| kind == "object";
    schema.get("type").is_some_and(|kind| is(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is)))
        || ["properties", "required", "additionalProperties"].iter().any(|name| schema.contains_key(*name))
}

/// Whether an object is one that the provider takes; it is closed where that is what it needs.
fn is_taken(sent: &mut Map<String, Value>, given: &Map<String, Value>, objects: Objects) -> bool {
    let is_closed = sent.get("additionalProperties") == Some(&Value::Bool(false));
    let names = |name: &str| sent.get("properties").is_some_and(|properties| properties.get(name).is_some());
    let required: Vec<&str> =
        given.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    match objects {
        Objects::Any => true,
        Objects::Complete => {
            let properties = sent.get("properties").and_then(Value::as_object);
            is_closed && properties.is_none_or(|all| all.keys().all(|name| required.contains(&name.as_str())))
        }
        Objects::Closed if is_closed => true,
        Objects::Closed => {
            let is_open =
                given.contains_key("additionalProperties") || OPENING.iter().any(|name| given.contains_key(*name));
            let is_named = sent.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
            let can_be = !is_open && is_named && required.iter().all(|name| names(name));
            if can_be {
                sent.insert("additionalProperties".to_owned(), false.into());
            }
            can_be
        }
    }
}
