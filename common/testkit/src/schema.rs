//! Checked-in JSON Schemas.

use std::path::Path;

use schemars::Schema;
use serde_json::{Value, json};

/// Adds the member `index`, the place of the answered input line, to the schema of a record's data.
#[must_use]
pub fn of_record(mut schema: Schema) -> Schema {
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        let description = "The place of the input line that this answers, from 0.";
        let index = json!({ "description": description, "type": "integer", "format": "uint64", "minimum": 0 });
        members.insert("index".to_owned(), index);
    }
    schema
}

/// Compares `schemas/<name>.json` of a crate with the schema of its type. `UPDATE=1` rewrites the file.
///
/// # Panics
///
/// Panics if they differ.
pub fn same_or_update(crate_directory: &str, name: &str, schema: &Schema) {
    let path = Path::new(crate_directory).join(format!("schemas/{name}.json"));
    // Serialized, a schema has its members in the customary order.
    let value = serde_json::to_value(schema).unwrap_or_default();
    let expected = format!("{value:#}\n");
    if std::env::var_os("UPDATE").is_some() {
        assert!(std::fs::write(&path, expected).is_ok(), "cannot write {}", path.display());
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{} differs from the type: look at the change, then run with UPDATE=1", path.display());
}
