//! JSON Schema validation without network access: all references must be within the schema.

use boon::{CompileError, Compiler, ErrorKind, SchemaIndex, Schemas, Type, Types, UrlLoader, ValidationError};
use serde_json::{Value, json};

/// The URL of a schema, against which its references are resolved.
const ADDRESS: &str = "schema:///root";

/// The members of a schema whose values are not schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Maximum length of a fault's message in characters, because it quotes a value that may be long.
const LONGEST: usize = 400;

/// A compiled JSON Schema.
pub struct Schema {
    parts: Schemas,
    root: SchemaIndex,
}

/// A violation of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The JSON Pointer (RFC 6901) to the invalid value; empty for the whole.
    pub pointer: String,
    /// The reason.
    pub message: String,
}

/// Rejects every reference outside of the schema.
struct NoRemoteRefs;

impl UrlLoader for NoRemoteRefs {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} is outside the schema, and nothing is fetched").into())
    }
}

impl Schema {
    /// Compiles a schema. The error is a message for people.
    pub fn compile(text: Value) -> Result<Self, String> {
        let wrong = |e: CompileError| shortened(&format!("{e:#}"));
        let (mut compiler, mut parts) = (Compiler::new(), Schemas::new());
        compiler.use_loader(Box::new(NoRemoteRefs));
        compiler.add_resource(ADDRESS, text).map_err(wrong)?;
        let root = compiler.compile(ADDRESS, &mut parts).map_err(wrong)?;
        Ok(Self { parts, root })
    }

    /// Like [`Schema::compile`], for a schema of a third party, which may contain ECMAScript patterns with look-around.
    /// Unsupported patterns are removed and returned.
    pub fn compile_lenient(mut text: Value) -> Result<(Self, Vec<String>), String> {
        if let Ok(schema) = Self::compile(text.clone()) {
            return Ok((schema, Vec::new()));
        }
        let mut unchecked = Vec::new();
        leave_out_patterns(&mut text, &mut unchecked);
        Self::compile(text).map(|schema| (schema, unchecked))
    }

    /// Replaces texts by the booleans, numbers, arrays and objects that they represent in JSON, where the schema
    /// requires such a type. Returns `None` if no text is replaced, or if the value is still invalid.
    pub fn with_parsed_texts(&self, value: &Value) -> Option<Value> {
        let mut parsed = value.clone();
        while let Err(error) = self.parts.validate(&parsed, self.root) {
            let mut texts = Vec::new();
            collect_texts(&error, &mut texts);
            let before = parsed.clone();
            for (pointer, types) in texts {
                let Some(text) = parsed.pointer_mut(&pointer) else { continue };
                if let Some(value) = text.as_str().and_then(|text| value_of(text, types)) {
                    *text = value;
                }
            }
            // A parsed array or object can contain further texts, which are shorter.
            if parsed == before {
                return None;
            }
        }
        (parsed != *value).then_some(parsed)
    }

    /// Returns the first `most` violations: those without causes, which tell what to change.
    pub fn faults(&self, value: &Value, most: usize) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Err(error) = self.parts.validate(value, self.root) {
            collect(&error, most, &mut faults);
        }
        faults
    }
}

/// Collects the pointers to texts for which a schema has other types, with these types.
fn collect_texts(error: &ValidationError<'_, '_>, texts: &mut Vec<(String, Types)>) {
    if let ErrorKind::Type { got: Type::String, want } = &error.kind {
        texts.push((error.instance_location.to_string(), *want));
    }
    error.causes.iter().for_each(|cause| collect_texts(cause, texts));
}

/// The value of one of these types that a text represents in JSON, or as Python writes a boolean.
fn value_of(text: &str, types: Types) -> Option<Value> {
    let value = match text {
        "True" | "False" => Value::Bool(text == "True"),
        json => serde_json::from_str(json).ok()?,
    };
    let is_wanted = match &value {
        Value::Null => types.contains(Type::Null),
        Value::Bool(_) => types.contains(Type::Boolean),
        Value::Number(number) => types.contains(Type::Number) || types.contains(Type::Integer) && !number.is_f64(),
        Value::Array(_) => types.contains(Type::Array),
        Value::Object(_) => types.contains(Type::Object),
        Value::String(_) => false,
    };
    is_wanted.then_some(value)
}

/// Removes unsupported patterns from a schema.
fn leave_out_patterns(schema: &mut Value, unchecked: &mut Vec<String>) {
    let cannot = |pattern: &str| Schema::compile(json!({ "pattern": pattern })).is_err();
    match schema {
        Value::Object(members) => {
            if let Some(pattern) = members.get("pattern").and_then(Value::as_str).filter(|pattern| cannot(pattern)) {
                unchecked.push(pattern.to_owned());
                members.remove("pattern");
            }
            if let Some(Value::Object(by_pattern)) = members.get_mut("patternProperties") {
                let before = unchecked.len();
                unchecked.extend(by_pattern.keys().filter(|pattern| cannot(pattern)).cloned());
                by_pattern.retain(|pattern, _| !unchecked[before..].contains(pattern));
                if unchecked.len() > before {
                    // Without these patterns it is unknown which properties are additional.
                    members.remove("additionalProperties");
                }
            }
            // Values that are not schemas are kept.
            let within = members.iter_mut().filter(|(name, _)| !DATA.contains(&name.as_str()));
            within.for_each(|(_, value)| leave_out_patterns(value, unchecked));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| leave_out_patterns(value, unchecked)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn collect(error: &ValidationError<'_, '_>, most: usize, faults: &mut Vec<Fault>) {
    if error.causes.is_empty() && faults.len() < most {
        let message = shortened(&error.kind.to_string());
        faults.push(Fault { pointer: error.instance_location.to_string(), message });
    }
    error.causes.iter().for_each(|cause| collect(cause, most, faults));
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        // A whole word is removed, because a part of a secret could not be recognized.
        Some((end, _)) => format!("{}…", &text[..text[..end].rfind(' ').map_or(end, |blank| blank + 1)]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_has_pointer_to_value() {
        let schema = Schema::compile(json!({
            "type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}
        }));
        let schema = schema.ok().unwrap();
        assert_eq!(schema.faults(&json!({"n": 1}), 5), []);
        assert_eq!(schema.faults(&json!({"n": "x"}), 5)[0].pointer, "/n");
        assert!(schema.faults(&json!({}), 5)[0].message.contains("missing properties 'n'"));
    }

    #[test]
    fn text_is_parsed_only_where_schema_requires_another_type() {
        let schema = Schema::compile(json!({
            "type": "object", "additionalProperties": false,
            "properties": {
                "text": {"type": "string"}, "either": {"type": ["integer", "string"]}, "flag": {"type": "boolean"},
                "count": {"type": "integer", "minimum": 1}, "size": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "list": {"type": "array", "items": {"$ref": "#/$defs/item"}}, "a/b~": {"type": "object"}
            },
            "$defs": {"item": {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}}
        }));
        let schema = schema.ok().unwrap();
        for (given, expected) in [
            (json!({"flag": "true"}), json!({"flag": true})),
            (json!({"flag": "False", "text": "false"}), json!({"flag": false, "text": "false"})),
            (json!({"count": "3", "either": "3"}), json!({"count": 3, "either": "3"})),
            (json!({"size": "null"}), json!({"size": null})),
            (json!({"size": "1e3"}), json!({"size": 1000.0})),
            (json!({"list": "[{\"n\": \"4\", \"s\": \"4\"}]"}), json!({"list": [{"n": 4, "s": "4"}]})),
            (json!({"list": ["{\"n\": 4}"]}), json!({"list": [{"n": 4}]})),
            (json!({"a/b~": "{}"}), json!({"a/b~": {}})),
            (json!("{\"count\": \"2\"}"), json!({"count": 2})),
        ] {
            assert_eq!(schema.with_parsed_texts(&given), Some(expected), "{given}");
        }
        for unchanged in [
            json!({"count": 3, "text": "true"}),
            json!({"count": "3.5"}),
            json!({"count": "0"}),
            json!({"count": "three"}),
            json!({"flag": "1"}),
            json!({"flag": "true", "other": 1}),
            json!({"list": "{}"}),
            json!({"text": 3}),
        ] {
            assert_eq!(schema.with_parsed_texts(&unchanged), None, "{unchanged}");
        }
    }

    #[test]
    fn compile_lenient_removes_unsupported_patterns() {
        let text = json!({
            "properties": {
                "a": {"type": "string", "pattern": "^(?!x)y", "minLength": 2},
                "b": {"pattern": "^z"}, "c": {"const": {"pattern": "^(?=x)"}}
            },
            "patternProperties": {"^(?<!q)p": {"type": "integer"}}, "additionalProperties": false
        });
        assert!(Schema::compile(text.clone()).is_err());
        let (schema, unchecked) = Schema::compile_lenient(text).unwrap();
        assert_eq!(unchecked, ["^(?<!q)p", "^(?!x)y"]);
        let fits = |value: Value| schema.faults(&value, 5).is_empty();
        assert!(fits(json!({"a": "xx", "p": 1, "c": {"pattern": "^(?=x)"}})));
        assert!(!fits(json!({"a": "x"})) && !fits(json!({"a": 1})) && !fits(json!({"b": "y"})));
        assert!(Schema::compile_lenient(json!({"type": "strange", "pattern": "(?=x)"})).is_err());
    }

    #[test]
    fn remote_reference_fails() {
        for outside in ["https://example.com/s.json", "http://localhost/s.json", "file:///etc/passwd"] {
            assert!(Schema::compile(json!({"$ref": outside})).is_err(), "{outside}");
        }
        assert!(Schema::compile(json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}})).is_ok());
    }
}
