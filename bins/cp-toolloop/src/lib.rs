//! Let a model use tools until it is done: within limits, recorded, and resumable after a stop at any point.
//!
//! The [`verbs`] plan a run; the [`engine`] asks the model and runs its calls, by the coprocesses in [`parts`]; each
//! step is written to the [`state`], from which a run is resumed; [`tools`] are the tools of the model. Each module
//! uses only the modules after it.

mod engine;
mod parts;
/// The state of a run: its plan, its steps, its ledger, and their files.
mod state {
    pub(crate) mod conversation;
    pub(crate) mod journal;
    pub(crate) mod ledger;
    pub(crate) mod plan;
    pub(crate) mod run;
    pub(crate) mod step;
    pub(crate) mod step_log;
    pub(crate) mod summary;
    pub(crate) mod tally;
}
/// The tools that a model may call: found, described, pinned, and their arguments checked.
mod tools {
    pub(crate) mod aliases;
    pub(crate) mod arguments;
    pub(crate) mod builtin;
    pub(crate) mod catalogue;
    pub(crate) mod description;
    pub(crate) mod find;
    pub(crate) mod tool;
}
/// The verbs. Each file has the options, the documentation and the output of one verb.
mod verbs {
    mod options;

    pub(crate) mod cancel;
    pub(crate) mod resume;
    mod rows;
    pub(crate) mod run;
    pub(crate) mod show;
    pub(crate) mod tools;
    pub(crate) mod undo;
}

use cp_common::program::{Check, Program, Status};
use cp_common::{Context, Result};

use crate::verbs::{cancel, resume, run, show, undo};

/// The description of the program for `reference`, `doctor` and the audit.
pub static PROGRAM: Program = Program {
    name: "cp-toolloop",
    about: "let a model use tools until it is done, within budgets",
    risk_tier: "T2",
    compliance: None,
    verbs: &[run::DOC, verbs::tools::DOC, show::RUNS_DOC, show::DOC, resume::DOC, undo::DOC, cancel::DOC],
    groups: &[],
    environment: &[
        ("CP_TOOLS_DIR", "A directory of tools for cp-toolloop"),
        ("CP_TOOL_BACKEND", "What drives the loop of cp-toolloop"),
    ],
    schemas: cp_common::schemas!(item tools runs run undone cancelled),
    checks,
    credentials: None,
    audit: cp_ledger::audit,
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-toolloop")]
pub struct Cli {
    #[command(flatten)]
    args: run::Args,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    Resume(resume::Args),
    Tools(verbs::tools::Args),
    Runs(show::RunsArgs),
    Show(show::Args),
    Undo(undo::Args),
    Cancel(cancel::Args),
}

/// Runs the verb of the command line.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        None => run::run(&cli.args, context),
        Some(Verb::Resume(args)) => resume::run(&args, context),
        Some(Verb::Tools(args)) => verbs::tools::run(&args, context),
        Some(Verb::Runs(args)) => show::list(&args, context),
        Some(Verb::Show(args)) => show::run(&args, context),
        Some(Verb::Undo(args)) => undo::run(&args, context),
        Some(Verb::Cancel(args)) => cancel::run(&args, context),
    }
}

fn checks(_: &mut Context) -> Vec<Check> {
    let parts = ["cp-llm", "cp-exec"].into_iter();
    let check = |name: &str| match cp_common::coprocess::find(name) {
        Ok(path) => Check::pass(name, path.display().to_string()),
        Err(e) => Check::not_fine(name, Status::Fail, e.message(), e.hint_text().unwrap_or("install it")),
    };
    parts.map(check).collect()
}

#[cfg(test)]
mod tests {
    use schemars::schema_for;

    /// The checked-in schemas are those of the types. `UPDATE=1` rewrites them.
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
}
