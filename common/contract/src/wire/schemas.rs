//! JSON Schemas of the output that several programs share, each a name and a text, for `Program::schemas`.

/// The schema of a prompt.
pub const PROMPT: (&str, &str) = ("prompt", include_str!("../../schemas/prompt.json"));
/// The schema of a message.
pub const MESSAGE: (&str, &str) = ("message", include_str!("../../schemas/message.json"));
/// The schema of a delta.
pub const DELTA: (&str, &str) = ("delta", include_str!("../../schemas/delta.json"));
/// The schema of a tool call.
pub const TOOL_CALL: (&str, &str) = ("tool_call", include_str!("../../schemas/tool_call.json"));
/// The schema of a tool result.
pub const TOOL_RESULT: (&str, &str) = ("tool_result", include_str!("../../schemas/tool_result.json"));
/// The schema of a receipt.
pub const RECEIPT: (&str, &str) = ("receipt", include_str!("../../schemas/receipt.json"));
/// The schema of the preview of a dry run.
pub const PREVIEW: (&str, &str) = ("preview", include_str!("../../schemas/preview.json"));
/// The schema of the records that a tee passes on.
pub const PASSED: (&str, &str) = ("passed", include_str!("../../schemas/passed.json"));
/// The schema of the counts in a closing line.
pub const SUMMARY: (&str, &str) = ("summary", include_str!("../../schemas/summary.json"));
/// The schema of the `error` member of a line that is not `ok`.
pub const ERROR: (&str, &str) = ("error", include_str!("../../schemas/error.json"));

/// Adds the member `index`, the place of the answered input line, to the schema of a record's data.
#[cfg(feature = "schema")]
#[must_use]
pub fn of_record(mut schema: schemars::Schema) -> schemars::Schema {
    let index = serde_json::json!({
        "description": "The place of the input line that this answers, from 0.",
        "type": "integer",
        "format": "uint64",
        "minimum": 0,
    });
    if let Some(serde_json::Value::Object(members)) = schema.get_mut("properties") {
        members.insert("index".to_owned(), index);
    }
    schema
}

/// Compares `schemas/<name>.json` of a crate with the schema of its type. `UPDATE=1` rewrites the file.
///
/// # Panics
///
/// Panics if they differ, because tests call it.
#[cfg(feature = "schema")]
pub fn same_or_update(crate_directory: &str, name: &str, schema: &schemars::Schema) {
    let path = std::path::Path::new(crate_directory).join(format!("schemas/{name}.json"));
    let value = serde_json::to_value(schema).unwrap_or_default();
    let expected = format!("{value:#}\n");
    if std::env::var_os("UPDATE").is_some() {
        assert!(std::fs::write(&path, expected).is_ok(), "cannot write {}", path.display());
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{} differs from the type: look at the change, then run with UPDATE=1", path.display());
}
