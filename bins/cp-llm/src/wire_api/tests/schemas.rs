//! Schemas as providers get them.

use serde_json::{Value, json};

use crate::wire_api::openai::is_strict;

#[test]
fn strict_mode_needs_closed_and_complete_objects() {
    let with = |members: Value| {
        let mut schema = json!({"type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {"a": {"anyOf": [{"type": "string", "pattern": "^x"}, {"$ref": "#/$defs/E"}]}},
            "$defs": {"E": {"type": "array", "items": {"type": "integer"}}}});
        schema.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        schema
    };
    assert!(is_strict(&with(json!({"title": "t", "$schema": "s"}))));
    for not_strict in [
        json!({"additionalProperties": true}),
        json!({"required": []}),
        json!({"type": "array"}),
        json!({"allOf": [{}]}),
        json!({"properties": {"a": {}}}),
        json!({"properties": {"a": {"type": "string", "minLength": 1}}}),
        json!({"properties": {"a": {"type": "string", "format": "uri"}}}),
        json!({"properties": {"a": {"type": "object", "properties": {}}}}),
        json!({"$defs": {"E": {"const": 1}}}),
    ] {
        assert!(!is_strict(&with(not_strict.clone())), "{not_strict}");
    }
}
