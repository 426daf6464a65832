//! The checked-in schemas are those of the types. `UPDATE=1` rewrites them.

use cp_common::wire::schemas::{of_record, same_or_update};
use schemars::{Schema, schema_for};

#[test]
fn schemas_are_those_of_the_types() {
    let schemas: [(&str, Schema); 2] = [
        ("system_text", schema_for!(crate::system::SystemText)),
        ("explained", of_record(schema_for!(crate::explain::Explained))),
    ];
    for (name, schema) in schemas {
        same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
    }
}
