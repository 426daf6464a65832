//! The checked-in schemas are those of the types. `UPDATE=1` rewrites them.

use cp_common::wire::schemas::{of_record, same_or_update};
use schemars::schema_for;

#[test]
fn schemas_are_those_of_the_types() {
    same_or_update(env!("CARGO_MANIFEST_DIR"), "item", &of_record(schema_for!(crate::report::Item<'_>)));
}
