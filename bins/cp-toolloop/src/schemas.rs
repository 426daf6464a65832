//! The checked-in schemas, compared with the types.

use schemars::schema_for;

#[test]
fn the_schemas_are_those_of_the_types() {
    let same = |name: &str, schema: &schemars::Schema| {
        cp_testkit::same_or_update(env!("CARGO_MANIFEST_DIR"), name, schema);
    };
    same("item", &cp_testkit::of_record(schema_for!(crate::engine::print::Event)));
    let mut tools = schema_for!(cp_common::wire::Page<crate::verbs::tools::Item>);
    tools.insert("x-untrusted".to_owned(), serde_json::json!(["items"]));
    same("tools", &tools);
    same("runs", &schema_for!(cp_common::wire::Page<crate::state::summary::Summary>));
    same("run", &schema_for!(crate::verbs::show::Shown));
    same("undone", &schema_for!(crate::verbs::undo::Undone));
    same("cancelled", &schema_for!(crate::state::summary::Summary));
}
