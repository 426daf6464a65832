//! What the structured outputs of Anthropic and `OpenAI` require of a schema beyond JSON Schema. Everything else of it
//! is sent as it was given.

use serde_json::{Map, Value};

/// Keywords whose objects permit members that `properties` does not name.
const OPENING: [&str; 10] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "else",
    "if",
    "oneOf",
    "patternProperties",
    "then",
    "unevaluatedProperties",
];

/// Keywords of the strict mode of `OpenAI`.
const STRICT: &str = "$defs $ref $schema additionalProperties anyOf const description enum exclusiveMaximum exclusiveMinimum format items \
    maxItems maximum minItems minimum multipleOf pattern properties required title type";

/// Closes objects that have properties and no rule for further members: Anthropic refuses others.
pub(super) fn closed(schema: &Value) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let close_each = |value: &Value| match value {
        Value::Object(schemas) => schemas.iter().map(|(name, schema)| (name.clone(), closed(schema))).collect(),
        Value::Array(schemas) => schemas.iter().map(closed).collect(),
        other => other.clone(),
    };
    let member = |(name, value): (&String, &Value)| {
        let value = match name.as_str() {
            "$defs" | "definitions" | "properties" | "anyOf" | "oneOf" | "prefixItems" => close_each(value),
            "items" | "additionalProperties" => closed(value),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    let mut sent: Map<String, Value> = members.iter().map(member).collect();
    if members.get("properties").is_some_and(Value::is_object)
        && !OPENING.iter().any(|name| members.contains_key(*name))
    {
        sent.insert("additionalProperties".to_owned(), false.into());
    }
    sent.into()
}

/// True if the strict mode of `OpenAI` takes a schema: its objects are closed and require all their properties.
pub(super) fn is_strict(schema: &Value) -> bool {
    schema["type"] == "object" && schema.get("anyOf").is_none() && is_taken(schema)
}

fn is_taken(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else { return false };
    let each_of = |schemas: &Value| schemas.as_object().is_some_and(|all| all.values().all(is_taken));
    let is_known = |(name, value): (&String, &Value)| match name.as_str() {
        "$defs" | "properties" => each_of(value),
        "anyOf" => value.as_array().is_some_and(|all| all.iter().all(is_taken)),
        "items" => is_taken(value),
        "format" => value != "uri",
        name => STRICT.split_whitespace().any(|known| known == name),
    };
    let names = schema["properties"].as_object().into_iter().flat_map(Map::keys);
    let is_required = |name: &String| schema["required"].as_array().is_some_and(|all| all.iter().any(|n| n == name));
    let is_object = schema["type"] == "object" || members.contains_key("properties");
    (!is_object || schema["additionalProperties"] == false && names.into_iter().all(is_required))
        && ["type", "anyOf", "$ref"].iter().any(|name| members.contains_key(*name))
        && members.iter().all(is_known)
}
