//! The schemas that `reference` prints are those of the types.

use cp_testkit::{of_record, same_or_update};
use schemars::schema_for;

#[test]
fn schemas_are_those_of_the_types() {
    let here = env!("CARGO_MANIFEST_DIR");
    same_or_update(here, "exec_result", &of_record(schema_for!(crate::exec_result::ExecResult)));
    same_or_update(here, "item", &of_record(schema_for!(crate::tools::Item)));
    same_or_update(here, "decision", &of_record(schema_for!(crate::verbs::check::Answer)));
    same_or_update(here, "approvals", &schema_for!(crate::verbs::approve::Approvals));
    same_or_update(here, "hook_changed", &schema_for!(crate::verbs::hook::install::Changed));
    same_or_update(here, "hook_answer", &schema_for!(crate::verbs::hook::answer::Answer));
    same_or_update(here, "policy", &schema_for!(crate::verbs::policy::Shown));
    same_or_update(here, "policy_changed", &schema_for!(crate::verbs::policy::additions::Extended));
    same_or_update(here, "run_undone", &schema_for!(crate::verbs::undo::Undone));
}
