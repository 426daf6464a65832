//! The checked-in schemas are those of the types. `UPDATE=1` rewrites them.

use cp_testkit::{of_record, same_or_update};
use schemars::schema_for;

#[test]
fn schemas_are_those_of_the_types() {
    let here = env!("CARGO_MANIFEST_DIR");
    same_or_update(here, "item", &of_record(schema_for!(crate::stdio::Item<'_>)));
}
