//! Run a command under policy, sandboxed, on the record.
//!
//! The [`verbs`] parse requests ([`request`]); the [`tools`] answer all requests except commands. [`decision`] applies
//! the [`policy`] and the [`rules`]. An allowed command is recorded and run ([`mod@run`]) in a [`sandbox`], for which
//! this program starts itself again as a helper. [`decision`] then decides about each program that a command line
//! starts.
//!
//! Dependencies: `verbs -> tools -> run -> decision -> guard -> {git_dir, rules} -> policy -> {names, sandbox, request,
//! refusal} -> files -> nofollow`. `changes` keeps files and lists their changes for `run` and `tools`. Every module may
//! use `data`, `digest`, `file_id` and `glob`.

mod changes;
mod decision;
mod digest;
mod exec_result;
mod file_id;
mod files;
mod git_dir;
mod guard;
mod hook;
mod hosts;
mod listings;
mod names;
mod nofollow;
mod policy;
mod refusal;
mod request;
mod rules;
mod run;
pub mod sandbox;
mod serde_paths;
mod tools;

use cp_common::program::Program;
use cp_common::{Context, Result};

/// The verbs, one file each.
mod verbs {
    pub(crate) mod agent;
    pub(crate) mod allow;
    pub(crate) mod approve;
    pub(crate) mod doctor;
    pub(crate) mod edit;
    pub(crate) mod hook;
    pub(crate) mod inside;
    pub(crate) mod policy;
    pub(crate) mod run;
    pub(crate) mod undo;
}

/// Data that is part of this program: texts in TOML, which the tests parse.
mod data {
    /// Parses such a text.
    pub(crate) fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> T {
        toml::from_str(text).unwrap_or_else(|error| unreachable!("data of this program: {error}"))
    }
}

/// Run a command under policy, sandboxed, on the record
#[derive(clap::Parser)]
pub struct Cli {
    #[command(flatten)]
    args: verbs::run::Args,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    Agent(verbs::agent::Args),
    Check(verbs::run::check::Args),
    Policy(verbs::policy::Args),
    Allow(verbs::allow::Args),
    Approve(verbs::approve::Args),
    Undo(verbs::undo::Args),
    Hook(verbs::hook::Args),
}

/// The description of the program.
pub static PROGRAM: Program = Program {
    name: "cp-exec",
    about: "run a command under policy, sandboxed, on the record",
    risk_tier: "T2",
    compliance: None,
    verbs: &[
        verbs::run::DOC,
        verbs::agent::DOC,
        verbs::run::check::DOC,
        verbs::policy::SHOW,
        verbs::policy::INIT,
        verbs::allow::DOC,
        verbs::approve::DOC,
        verbs::undo::DOC,
        verbs::hook::DOC,
        verbs::hook::install::INSTALL,
        verbs::hook::doctor::DOC,
        verbs::hook::install::REMOVE,
        verbs::hook::shell::DOC,
    ],
    groups: &[],
    environment: &[
        (
            "CLAUDE_CODE_CHILD_SESSION",
            "Set by Claude Code for lines of tools and hooks, and not for servers, for `hook shell`",
        ),
        ("CLAUDE_CODE_SESSION_ID", "The session that a line belongs to, for `hook shell`; set by Claude Code"),
        ("CLAUDE_CODE_SHELL_PREFIX", "The program that Claude Code puts before each line, as `hook install` sets it"),
        ("CLAUDE_CODE_SESSION_ATTENDED", "`1` if a person can answer questions, for `hook claude`; set by Claude Code"),
        ("CLAUDE_CONFIG_DIR", "Where Claude Code has its settings"),
        ("CODEX_HOME", "Where Codex has its settings and hooks"),
        ("COPILOT_HOME", "Where Copilot has its settings"),
        ("GEMINI_CLI_HOME", "The directory whose `.gemini` has the settings of Gemini CLI"),
        ("XDG_CONFIG_HOME", "The directory whose `opencode` has the settings of opencode"),
        ("VIRTUAL_ENV", "The virtual environment of Python that `policy init --for` finds active"),
    ],
    schemas: cp_common::schemas!(
        approvals decision edited exec_result hook_answer item policy run_undone
    ),
    checks: verbs::doctor::checks,
    credentials: None,
    audit: cp_ledger::audit,
};

/// Runs the verb the user asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    if sandbox::is_inside() {
        return match cli.verb {
            None => verbs::inside::command(&cli.args, context),
            Some(Verb::Hook(args)) => verbs::inside::hook(&args, context),
            Some(_) => Err(verbs::inside::refusal()),
        };
    }
    match cli.verb {
        None => verbs::run::run(&cli.args, context),
        Some(Verb::Agent(args)) => verbs::agent::run(&args, context),
        Some(Verb::Check(args)) => verbs::run::check::run(&args, context),
        Some(Verb::Policy(args)) => verbs::policy::run(&args, context),
        Some(Verb::Allow(args)) => verbs::allow::run(&args, context),
        Some(Verb::Approve(args)) => verbs::approve::run(&args, context),
        Some(Verb::Undo(args)) => verbs::undo::run(&args, context),
        Some(Verb::Hook(args)) => verbs::hook::run(&args, context),
    }
}

#[cfg(test)]
mod schemas {
    use cp_testkit::{of_record, same_or_update};
    use schemars::schema_for;

    #[test]
    fn schemas_are_those_of_the_types() {
        let here = env!("CARGO_MANIFEST_DIR");
        same_or_update(here, "exec_result", &of_record(schema_for!(crate::exec_result::ExecResult)));
        same_or_update(here, "item", &of_record(schema_for!(crate::tools::Item)));
        same_or_update(here, "decision", &of_record(schema_for!(crate::verbs::run::check::Answer)));
        same_or_update(here, "approvals", &schema_for!(crate::verbs::approve::Approvals));
        same_or_update(here, "edited", &schema_for!(crate::verbs::edit::Edited));
        same_or_update(here, "hook_answer", &schema_for!(crate::verbs::hook::Answer));
        same_or_update(here, "policy", &schema_for!(crate::verbs::policy::Shown));
        same_or_update(here, "run_undone", &schema_for!(crate::verbs::undo::Undone));
    }
}
