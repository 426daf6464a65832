//! `--schema`: an answer must be JSON that matches a schema. It is checked here even if the provider guarantees it.
//!
//! A schema is JSON Schema, or the short notation of the llm program: `name, age int, bio: one sentence`. Its fields
//! are separated by commas, or by newlines if there is one. A field is a name, then optionally a type, then optionally
//! a colon and a description.

use std::path::Path;

use cp_common::context::given::{self, text_of};
use cp_common::wire::Message;
use cp_common::{Error, Result};
use cp_schema::{Fault, Schema};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::code_block;

/// The longest schema, in bytes.
const LONGEST: u64 = 4 << 20;

/// A JSON Schema that answers must match.
pub(crate) struct AnswerSchema {
    /// The schema itself, for the request.
    pub text: Value,
    compiled: Schema,
}

impl AnswerSchema {
    /// Loads a schema from a file, from JSON or from the short notation. References to other documents are not
    /// resolved.
    pub(crate) fn load(given: &Path) -> Result<Self> {
        let written = given.to_str().filter(|text| *text != "-" && (!given.exists() || given.is_dir()));
        let place = |e: Error| if written.is_some() { e } else { e.in_file(given) };
        let wrong = |what: String| place(Error::validation(format!("not a JSON Schema: {what}"))).fatal();
        let parsed = |json: &[u8]| serde_json::from_slice(json).map_err(|e| wrong(e.to_string()));
        let text: Value = match written {
            Some(text) if text.trim_start().starts_with('{') => parsed(text.as_bytes())?,
            Some(text) => match from_notation(text) {
                Err(e) if text.contains([' ', '\t', '\n', ',', ':']) => {
                    let hint = "name a file, write JSON, or fields as in \"name, age int, bio: one sentence\"";
                    return Err(e.hint(hint).fatal());
                }
                // A single word that is not a valid field was probably meant as a file name.
                found => found.map_err(|_| Error::not_found("no such file").in_file(given).fatal())?,
            },
            None => {
                let bytes = given::bytes(given, LONGEST).map_err(Error::fatal)?;
                parsed(text_of(&bytes).map_err(|e| place(e).fatal())?.as_bytes())?
            }
        };
        Self::compile(text).map_err(place)
    }

    /// Compiles a schema.
    pub(crate) fn compile(text: Value) -> Result<Self> {
        let wrong = |what: String| Error::validation(format!("not a JSON Schema: {what}")).fatal();
        Ok(Self { compiled: Schema::compile(text.clone()).map_err(wrong)?, text })
    }

    /// Returns the JSON in an answer, in its own bytes, if it matches.
    pub(super) fn parsed(&self, answer: &str) -> Result<Box<RawValue>, Fault> {
        // Models like to put a fence around JSON.
        let block = code_block::first_block(answer);
        let text = block.as_ref().map_or(answer, |block| &block.text).trim();
        let not_json = |e: serde_json::Error| Fault { pointer: String::new(), message: format!("not valid JSON: {e}") };
        let value: Value = serde_json::from_str(text).map_err(not_json)?;
        match self.compiled.faults(&value, 1).pop() {
            Some(fault) => Err(fault),
            None => serde_json::from_str(text).map_err(not_json),
        }
    }
}

/// The error for a message that does not match and is not asked for again.
pub(super) fn mismatch(fault: &Fault, message: &Message) -> Error {
    let error = Error::validation(format!("the answer does not match the schema: {}", fault.message));
    let error = error.with("origin", "upstream").with("reason", "schema").with("path", fault.pointer.as_str());
    let error = error.with("partial", message.content.text()).with("_untrusted", vec!["/partial"]);
    error.with("usage", json!(message.usage))
}

/// The prompt that asks the model for a correction.
pub(super) fn correction(Fault { pointer, message }: &Fault) -> String {
    let place = if pointer.is_empty() { "the whole" } else { pointer };
    format!(
        "Your answer does not fit the schema. At {place}: {message}. Answer again with the corrected JSON and nothing else."
    )
}

/// The types of the notation and of JSON Schema.
const TYPES: [(&str, &str); 4] = [("str", "string"), ("int", "integer"), ("float", "number"), ("bool", "boolean")];

/// Converts the notation to a JSON Schema of an object that requires all fields.
fn from_notation(text: &str) -> Result<Value> {
    let separator = if text.trim().contains('\n') { '\n' } else { ',' };
    let mut properties = Map::new();
    let fields = text.split(separator).map(str::trim).filter(|field| !field.is_empty());
    for (at, field) in fields.enumerate() {
        let (name, property) = property(field).map_err(|e| e.with("field", at + 1))?;
        if properties.insert(name.to_owned(), property).is_some() {
            return Err(Error::validation(format!("the field `{name}` is named twice")).with("field", at + 1));
        }
    }
    if properties.is_empty() {
        return Err(Error::validation("no field is named"));
    }
    let required: Vec<&String> = properties.keys().collect();
    // Anthropic refuses objects that permit other members.
    Ok(json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false}))
}

fn property(field: &str) -> Result<(&str, Value)> {
    let (head, description) = field.split_once(':').unwrap_or((field, ""));
    let mut words = head.split_whitespace();
    let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or("str"));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || !byte.is_ascii();
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(Error::validation(format!("`{field}` does not begin with the name of a field")));
    }
    if let Some(word) = words.next() {
        return Err(Error::validation(format!(
            "`{word}` in `{field}` is neither a type nor a description after a colon"
        )));
    }
    let Some((_, kind)) = TYPES.iter().find(|(known, _)| *known == kind) else {
        return Err(Error::validation(format!("`{kind}` in `{field}` is not a type: str, int, float or bool")));
    };
    let mut property = json!({"type": kind});
    if let Some(text) = Some(description.trim()).filter(|text| !text.is_empty()) {
        property["description"] = text.into();
    }
    Ok((name, property))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Result<AnswerSchema> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.json");
        std::fs::write(&file, text).unwrap();
        AnswerSchema::load(&file)
    }

    const PERSON: &str = r#"{"type":"object","required":["age"],"properties":{"age":{"type":"integer"}}}"#;

    #[test]
    fn matching_json_keeps_bytes() {
        let person = schema(PERSON).unwrap();
        assert_eq!(person.parsed("{\"age\": 1e2}").unwrap().get(), "{\"age\": 1e2}");
        assert_eq!(person.parsed("```json\n{\"age\":3}\n```\n").unwrap().get(), "{\"age\":3}");
    }

    #[test]
    fn invalid_and_remote_schemas_are_rejected() {
        assert!(schema("{").is_err());
        assert!(schema(r#"{"$ref":"https://example.com/s.json"}"#).is_err());
        assert!(schema(r#"{"$ref":"file:///etc/passwd"}"#).is_err());
    }

    #[test]
    fn notation_fields_have_types_and_descriptions() {
        let expected = json!({"type": "object", "required": ["name", "age", "bio"], "properties": {
            "name": {"type": "string"}, "age": {"type": "integer"}, "bio": {"type": "string", "description": "short: one line"}},
            "additionalProperties": false});
        assert_eq!(from_notation("name, age int, bio: short: one line").unwrap(), expected);
        assert_eq!(from_notation("\n name\n age int\n\n bio str: short: one line\n").unwrap(), expected);
        let lines = from_notation("a float: one, two\nb bool").unwrap();
        assert_eq!(lines["properties"]["a"], json!({"type": "number", "description": "one, two"}));
    }

    #[test]
    fn notation_error_names_field() {
        for (text, field, word) in [
            ("name, age itn", 2, "itn"),
            ("name, bio a short text", 2, "short"),
            ("a, b, a", 3, "`a`"),
            ("a, : nothing", 2, ": nothing"),
            ("person.json", 1, "person.json"),
        ] {
            let error = from_notation(text).unwrap_err();
            assert!(error.message().contains(word), "{text}: {error}");
            assert_eq!(error.details()["field"], field, "{text}");
        }
        assert!(from_notation(" , ").is_err());
    }
}
