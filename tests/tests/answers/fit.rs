//! Whether a value fits a schema, strictly: no member that the schema does not have, and what is not ours marked as it
//! says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The schemas of a program, closed.
pub(super) struct Schemas(BTreeMap<String, (jsonschema::Validator, Vec<String>)>);

impl Schemas {
    pub(super) fn of(reference: &Value) -> Self {
        let schemas = reference["schemas"].as_object().unwrap().iter();
        Self(
            schemas
                .map(|(name, schema)| {
                    let mut closed = schema["json_schema"].clone();
                    close(&mut closed);
                    let untrusted = schema["untrusted_fields"].as_array().unwrap().iter();
                    let untrusted = untrusted.map(|field| field.as_str().unwrap().to_owned()).collect();
                    (name.clone(), (jsonschema::validator_for(&closed).expect("a valid schema"), untrusted))
                })
                .collect(),
        )
    }

    pub(super) fn fits(&self, name: &str, value: &Value) -> Result<(), String> {
        let (validator, untrusted) = &self.0[name];
        let faults: Vec<String> =
            validator.iter_errors(value).map(|e| format!("{name}{}: {e}", e.instance_path())).collect();
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        match name {
            // What passes is marked by whoever made it.
            "passed" => Ok(()),
            "error" => marks(&value["details"], None, &[]),
            // A prompt of nothing but the caller's own words has nothing to mark.
            "prompt" => marks(value, Some(untrusted), &["messages"]),
            _ => marks(value, Some(untrusted), &[]),
        }
        .map_err(|e| format!("{name}: {e}"))
    }
}

/// Forbids every member that is not listed, where the schema does not say outright that others are possible.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("properties").is_some_and(Value::is_object) && !members.contains_key("additionalProperties")
            {
                members.insert("additionalProperties".to_owned(), json!(false));
            }
            members.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

/// Whether every mark points at something in one of the fields that may be marked, and each of them that holds
/// something is marked.
fn marks(value: &Value, fields: Option<&[String]>, own: &[&str]) -> Result<(), String> {
    let marks: Vec<&str> = match value.get("_untrusted") {
        None => Vec::new(),
        Some(marks) => marks.as_array().ok_or("no list")?.iter().filter_map(Value::as_str).collect(),
    };
    for mark in &marks {
        if value.pointer(mark).is_none() {
            return Err(format!("`{mark}` points at nothing"));
        }
    }
    let Some(fields) = fields else { return Ok(()) };
    let field_of = |mark: &&str| mark.split('/').nth(1).unwrap_or_default().to_owned();
    let marked: Vec<String> = marks.iter().map(field_of).collect();
    if let Some(stranger) = marked.iter().find(|field| !fields.contains(field)) {
        return Err(format!("`{stranger}` is marked, and the schema does not say that it may be"));
    }
    let holds = |field: &String| match &value[field] {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    };
    match fields.iter().find(|field| holds(field) && !marked.contains(field) && !own.contains(&field.as_str())) {
        Some(field) => Err(format!("`{field}` is not marked")),
        None => Ok(()),
    }
}

#[test]
fn a_member_too_many_a_mark_too_many_and_a_mark_too_few_are_found() {
    let schema = json!({
        "type": "object",
        "properties": {"text": {"type": "string"}, "n": {"$ref": "#/$defs/N"}, "_untrusted": {"type": "array"}},
        "$defs": {"N": {"type": "object", "properties": {"a": {}}}},
    });
    let reference = json!({"schemas": {"a": {"json_schema": schema, "untrusted_fields": ["text"]}}});
    let schemas = Schemas::of(&reference);
    for good in [json!({}), json!({"text": ""}), json!({"text": "x", "n": {"a": 1}, "_untrusted": ["/text"]})] {
        schemas.fits("a", &good).unwrap();
    }
    for bad in [
        json!({"more": 1}),
        json!({"n": {"b": 1}}),
        json!({"text": "x"}),
        json!({"_untrusted": ["/text"]}),
        json!({"text": "x", "n": {}, "_untrusted": ["/text", "/n"]}),
    ] {
        schemas.fits("a", &bad).unwrap_err();
    }
}
