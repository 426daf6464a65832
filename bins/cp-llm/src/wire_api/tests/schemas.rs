//! Schemas as providers get them.

use serde_json::{Value, json};

use crate::wire_api::schema::{closed, is_strict};

#[test]
fn objects_are_closed_unless_schema_permits_more_members() {
    let open = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"properties": {"b": {"minLength": 2}}}},
        "c": {"oneOf": [{"properties": {"d": {}}}, {"$ref": "#/$defs/E"}]}}, "$defs": {"E": {"properties": {}}}});
    let sent = closed(&open);
    for place in ["", "/properties/a/items", "/properties/c/oneOf/0", "/$defs/E"] {
        assert_eq!(sent.pointer(place).unwrap()["additionalProperties"], false, "{place}: {sent}");
    }
    let mut reopened = sent;
    for place in ["", "/properties/a/items", "/properties/c/oneOf/0", "/$defs/E"] {
        let schema = reopened.pointer_mut(place).unwrap().as_object_mut().unwrap();
        schema.remove("additionalProperties");
    }
    assert_eq!(reopened, open, "nothing else is changed");
    for kept in [
        json!({"type": "object"}),
        json!({"properties": {"a": {}}, "additionalProperties": true}),
        json!({"properties": {"a": {}}, "patternProperties": {"^b": {}}}),
        json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
        json!({"const": {"properties": {}}, "enum": [{"properties": {}}]}),
        json!(true),
    ] {
        assert_eq!(closed(&kept), kept);
    }
}

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
