//! A value that is valid under a schema is valid under the schema that is sent, except for members that the schema does not mention.

use cp_schema::Schema;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::wire_api::schema::{anthropic, gemini, openai};

/// A schema, and a value that is valid under it.
type Pair = (Value, Value);

fn with(mut schema: Value, more: Value) -> Value {
    if let (Value::Object(schema), Value::Object(more)) = (&mut schema, more) {
        schema.extend(more);
    }
    schema
}

fn leaf() -> impl Strategy<Value = Pair> {
    let text = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": ["string", "null"], "minLength": 1, "description": "d"})),
        Just(json!({"type": "string", "format": "uri", "maxLength": 9})),
        Just(json!({"type": "string", "pattern": "^[a-z]+$", "default": "x"})),
        Just(json!({"type": "string", "enum": ["ab", "cd"]})),
        Just(json!({"const": "ab"})),
        Just(json!({"type": "string", "not": {"const": "cd"}})),
        Just(json!({"type": "string", "if": {"const": "cd"}, "then": false})),
    ];
    let number = prop_oneof![
        Just(json!({"type": "integer", "minimum": 0, "exclusiveMaximum": 9})),
        Just(json!({"type": "number", "multipleOf": 1, "maximum": 8})),
        Just(json!({"enum": [4, null]})),
        Just(json!({"const": 4, "title": "four"})),
    ];
    prop_oneof![
        text.prop_map(|schema| (schema, json!("ab"))),
        number.prop_map(|schema| (schema, json!(4))),
        Just((json!({"type": "boolean"}), json!(true))),
        Just((json!(true), json!(null))),
    ]
}

fn array(items: Vec<Pair>, kind: u8) -> Pair {
    let (schemas, values): (Vec<Value>, Vec<Value>) = items.into_iter().unzip();
    let count = values.len();
    let schema = match kind {
        0 => json!({"type": "array", "items": {"anyOf": [{"anyOf": schemas}, {"type": "null"}]}, "minItems": count}),
        1 => json!({"type": "array", "prefixItems": schemas, "items": {"type": "null"}}),
        _ => json!({"type": "array", "maxItems": count, "contains": schemas.first().cloned().unwrap_or(json!(true))}),
    };
    if count == 0 { (json!({"type": "array"}), json!([])) } else { (schema, values.into()) }
}

/// An object with some of its members; some members are required.
fn object(members: Vec<(Pair, bool, bool)>, kind: u8) -> Pair {
    let (mut properties, mut value, mut required) = (Map::new(), Map::new(), Vec::new());
    for (((schema, member), is_there, is_required), name) in members.into_iter().zip(["a", "b", "c", "p"]) {
        properties.insert(name.to_owned(), schema);
        if is_there || is_required {
            value.insert(name.to_owned(), member);
        }
        if is_required {
            required.push(name);
        }
    }
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let schema = match kind {
        0 | 1 => with(schema, json!({"additionalProperties": false, "minProperties": required.len()})),
        2 => with(schema, json!({"additionalProperties": {"type": "integer"}, "propertyNames": {"maxLength": 9}})),
        3 => {
            value.insert("q1".to_owned(), json!(1));
            with(schema, json!({"additionalProperties": false, "patternProperties": {"^q": {"type": "integer"}}}))
        }
        4 => {
            value.insert("q".to_owned(), json!(1));
            with(schema, json!({"allOf": [{"properties": {"q": {"type": "integer"}}}, {"required": ["q"]}]}))
        }
        5 => with(schema, json!({"unevaluatedProperties": false, "anyOf": [{"required": required}, {"type": "null"}]})),
        _ => schema,
    };
    (schema, value.into())
}

fn wrapped((schema, value): Pair, kind: u8) -> Pair {
    let never = json!({"type": "string", "const": "never"});
    let schema = match kind {
        0 => json!({"anyOf": [never, schema]}),
        1 => json!({"oneOf": [schema, never], "description": "one of"}),
        2 => json!({"allOf": [schema], "description": "all of", "default": null}),
        3 => json!({"allOf": [schema, {"not": never}]}),
        4 => json!({"anyOf": [schema], "oneOf": [never, {"not": never}]}),
        _ => schema,
    };
    (schema, value)
}

fn pair() -> impl Strategy<Value = Pair> {
    let inner = leaf().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..3), 0_u8..3).prop_map(|(items, kind)| array(items, kind)),
            (prop::collection::vec((inner.clone(), any::<bool>(), any::<bool>()), 0..4), 0_u8..9)
                .prop_map(|(members, kind)| object(members, kind)),
            (inner, 0_u8..6).prop_map(|(pair, kind)| wrapped(pair, kind)),
        ]
    });
    (inner, 0_u8..4).prop_map(|((schema, value), kind)| match kind {
        0 => (json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/x", "$defs": {"x": schema}}), value),
        1 => {
            let properties = json!({"a": {"$ref": "#/definitions/x", "description": "the one", "minProperties": 0}});
            let schema = json!({"type": "object", "definitions": {"x": schema}, "properties": properties, "required": ["a"],
                "additionalProperties": false});
            (schema, json!({ "a": value }))
        }
        _ => (schema, value),
    })
}

/// The value with one more member in each of its objects.
fn opened(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), opened(value)));
            members.chain([("z".to_owned(), json!(1))]).collect()
        }
        Value::Array(values) => values.iter().map(opened).collect(),
        other => other.clone(),
    }
}

fn takes(schema: &Value, value: &Value) -> bool {
    Schema::compile(schema.clone()).unwrap_or_else(|e| panic!("{schema}: {e}")).faults(value, 1).is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn valid_value_stays_valid((schema, value) in pair(), others in prop::collection::vec(pair(), 3)) {
        prop_assert!(takes(&schema, &value), "{schema} {value}");
        // The schema names all members of the value.
        let sent = anthropic(&schema);
        prop_assert!(takes(&sent, &value), "anthropic: {value} by {schema} but not by {sent}");
        let others = others.into_iter().map(|(_, value)| value).chain([opened(&value), value.clone()]);
        for value in others.filter(|value| takes(&schema, value)) {
            for sent in [Some(gemini(&schema)), openai(&schema)].into_iter().flatten() {
                prop_assert!(takes(&sent, &value), "{value} by {schema} but not by {sent}");
            }
        }
    }
}

#[test]
fn schemas_are_rewritten_for_each_provider() {
    let closed = json!({"$schema": "s", "type": "object", "additionalProperties": false, "required": ["n", "k"], "properties": {
        "n": {"type": "string", "minLength": 2, "description": "the name"},
        "k": {"oneOf": [{"const": "x"}, {"$ref": "#/definitions/K", "title": "t"}]}}, "definitions": {"K": {"type": "integer", "minimum": 1}}});
    let one_of = json!([{"const": "x"}, {"$ref": "#/$defs/K"}]);
    let name = json!({"type": "string", "description": "the name\n\n{\"minLength\":2}"});
    let expected = |kinds: Value, definition: Value| {
        json!({"type": "object", "additionalProperties": false, "required": ["n", "k"], "properties": {"n": name, "k": kinds},
            "$defs": {"K": definition}})
    };
    let typed = json!({"anyOf": [{"const": "x", "type": ["string"]}, {"$ref": "#/$defs/K"}]});
    let strict = expected(typed, json!({"type": "integer", "minimum": 1}));
    assert_eq!(openai(&closed), Some(strict));
    let described = json!({"type": "integer", "description": "{\"minimum\":1}"});
    assert_eq!(anthropic(&closed), expected(json!({"anyOf": one_of}), described));
    let enums = json!({"oneOf": [{"enum": ["x"]}, {"$ref": "#/$defs/K"}]});
    assert_eq!(gemini(&closed), expected(enums, json!({"type": "integer", "minimum": 1})));

    let open = json!({"type": "object", "properties": {"n": {"type": "string"}}});
    assert_eq!(anthropic(&open), with(open.clone(), json!({"additionalProperties": false})));
    for not_strict in
        [open.clone(), with(open.clone(), json!({"additionalProperties": false})), json!({"type": "array"})]
    {
        assert_eq!(openai(&not_strict), None, "{not_strict}");
    }
    // These schemas are sent unchanged, and the provider reports its errors.
    for kept in [
        json!({"type": "object"}),
        with(open, json!({"additionalProperties": true})),
        json!({"$ref": "#/properties/a"}),
    ] {
        assert_eq!(anthropic(&kept), kept);
    }
}
