//! The schemas of what the verbs print, compared with their types.

use schemars::schema_for;

#[test]
fn the_schemas_are_those_of_the_types() {
    let same = |name: &str, schema: &schemars::Schema| {
        cp_common::wire::schemas::same_or_update(env!("CARGO_MANIFEST_DIR"), name, schema);
    };
    same("item", &schema_for!(crate::engine::event::Event));
    same("tools", &schema_for!(crate::verbs::tools::Page));
    same("runs", &schema_for!(crate::verbs::runs::Page));
    same("run", &schema_for!(crate::verbs::show::Shown));
    same("cancelled", &schema_for!(crate::verbs::cancel::Cancelled));
}
