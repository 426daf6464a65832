//! The checked-in schemas are those of the types. `UPDATE=1` rewrites them.

use cp_testkit::{of_record, same_or_update};
use schemars::{Schema, schema_for};

#[test]
fn schemas_are_those_of_the_types() {
    let schemas: [(&str, Schema); 8] = [
        ("session_added", of_record(schema_for!(crate::round::Added))),
        ("session_loaded", schema_for!(crate::load::Loaded)),
        ("session_counted", schema_for!(crate::session::Counted)),
        ("session_shown", schema_for!(crate::session::Shown)),
        ("session_page", schema_for!(cp_common::wire::Page<crate::session::Listed>)),
        ("session_changed", schema_for!(crate::lifecycle::Changed)),
        ("session_deleted", schema_for!(crate::delete::Deleted)),
        ("session_found", schema_for!(cp_common::wire::Page<crate::search::Found>)),
    ];
    for (name, mut schema) in schemas {
        if name == "session_found" {
            schema.insert("x-untrusted".to_owned(), serde_json::json!(["items"]));
        }
        same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
    }
}
