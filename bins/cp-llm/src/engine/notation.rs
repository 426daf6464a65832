//! The short notation of a schema, that of the program llm: `name, age int, bio: one sentence`. Fields are separated by commas, or by
//! lines where it has more than one; each is a name, a type that may follow it, and a description that may follow a colon.

use cp_common::spelling::nearest;
use cp_common::{Error, Result};
use serde_json::{Map, Value, json};

/// The types, and what JSON Schema calls them.
const TYPES: [(&str, &str); 4] = [("str", "string"), ("int", "integer"), ("float", "number"), ("bool", "boolean")];

/// The JSON Schema that the notation stands for: an object that has all of the fields.
pub(super) fn schema(text: &str) -> Result<Value> {
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
    Ok(json!({"type": "object", "required": required, "properties": properties}))
}

/// The JSON Schema of a list of what another describes, in the member `items`.
pub(super) fn list_of(schema: &Value) -> Value {
    json!({"type": "object", "required": ["items"], "properties": {"items": {"type": "array", "items": schema}}})
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
        return Err(Error::validation(format!("`{word}` in `{field}` is neither a type nor a description"))
            .hint("write a colon before a description"));
    }
    let Some((_, kind)) = TYPES.iter().find(|(known, _)| *known == kind) else {
        let error = Error::validation(format!("`{kind}` in `{field}` is not a type: str, int, float or bool"));
        return Err(match nearest(kind, TYPES.map(|(known, _)| known)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error,
        });
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

    #[test]
    fn fields_have_types_and_descriptions_and_are_all_required() {
        let expected = json!({"type": "object", "required": ["name", "age", "bio"], "properties": {
            "name": {"type": "string"}, "age": {"type": "integer"}, "bio": {"type": "string", "description": "short: one line"}}});
        assert_eq!(schema("name, age int, bio: short: one line").unwrap(), expected);
        assert_eq!(schema("\n name\n age int\n\n bio str: short: one line\n").unwrap(), expected);
        let lines = schema("a float: one, two\nb bool").unwrap();
        assert_eq!(lines["properties"]["a"], json!({"type": "number", "description": "one, two"}));
        assert_eq!(list_of(&expected)["properties"]["items"]["items"], expected);
    }

    #[test]
    fn a_slip_is_named_with_its_field() {
        for (text, field, word) in [
            ("name, age itn", 2, "itn"),
            ("name, bio a short text", 2, "short"),
            ("a, b, a", 3, "`a`"),
            ("a, : nothing", 2, ": nothing"),
            ("person.json", 1, "person.json"),
        ] {
            let error = schema(text).unwrap_err();
            assert!(error.message().contains(word), "{text}: {error}");
            assert_eq!(error.details()["field"], field, "{text}");
        }
        assert_eq!(schema("age itn").unwrap_err().hint_text(), Some("did you mean `int`?"));
        assert!(schema(" , ").is_err());
    }
}
