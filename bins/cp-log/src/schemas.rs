//! The schemas that `reference` prints are those of the types; `UPDATE=1 cargo test` rewrites them.

use cp_testkit::of_record;
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

fn compare(name: &str, schema: &Value) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    } else {
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "{name}: run UPDATE=1 cargo test");
    }
}

fn of<T: JsonSchema>(name: &str) {
    compare(name, schema_for!(T).as_value());
}

#[test]
fn schemas_are_those_of_the_types() {
    of::<crate::audit::Judged>("claim");
    of::<crate::bundle::Bundled>("bundled");
    of::<crate::append::Planned>("planned");
    of::<crate::ledger::Found>("blob");
    of::<crate::lifecycle::Begun>("begun");
    of::<crate::stats::Stats>("stats");
    compare("checked", of_record(schema_for!(crate::prove::Checked)).as_value());
    of::<crate::checkpoint::Made>("made");
    of::<crate::prove::Proved>("proof");
    of::<crate::lifecycle::Repaired>("repaired");
    of::<crate::lifecycle::Rotated>("rotated");
    of::<crate::checkpoint::Signed>("signed");
    of::<crate::ledger::Tip>("tip");
    of::<crate::verify::Verified>("verified");
}

#[test]
fn the_schema_of_an_entry_is_the_format() {
    let text = json!({"type": "string"});
    compare(
        "entry",
        &json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Entry",
            "description": "A line of a ledger, and where it was found; only some of its members after --fields.",
            "type": "object",
            "x-untrusted": ["content", "message", "data"],
            "properties": {
                "seq": {"type": "integer", "minimum": 0, "maximum": cp_ledger::format::line::MAX_SEQ},
                "ts": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"},
                "event": text, "agent": text, "session": text, "run": text,
                "turn": {"type": "integer", "minimum": 0},
                "role": text,
                "content": {"description": "Any JSON: usually a string or a list of blocks."},
                "message": {"type": ["string", "object"], "description": "A text, or the blob it was moved to."},
                "data": {"type": "object"},
                "prev": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
                "hash": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
                "ledger": {"type": "string", "description": "The file that it was found in; `seq` is its place there."},
                "ledger_bytes": {"type": "string", "description": "The path in base64, where it is not UTF-8."},
                "_untrusted": {"type": "array", "items": text, "description": "JSON Pointers to what is not ours."},
            },
            "additionalProperties": false,
        }),
    );
}
