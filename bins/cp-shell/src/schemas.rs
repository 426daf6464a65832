//! The checked-in schemas are those of the types. `UPDATE=1` rewrites them.

use cp_common::wire::schemas::same_or_update;
use schemars::schema_for;

#[test]
fn schemas_match_types() {
    for (name, schema) in [
        ("init", schema_for!(crate::init::Made)),
        ("config", schema_for!(crate::config::All)),
        ("setting", schema_for!(crate::config::One)),
        ("agent_setting", schema_for!(crate::config::AgentSetting)),
        ("registered", schema_for!(crate::register::Registered)),
        ("reset", schema_for!(crate::reset::Reset)),
        ("update", schema_for!(crate::update::Updated)),
        ("response", schema_for!(crate::pipe::responder::Response)),
    ] {
        same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
    }
}
