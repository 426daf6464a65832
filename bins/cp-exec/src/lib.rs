//! Run a command under policy, sandboxed, on the record.
//!
//! The [`verbs`] parse requests ([`request`]); the [`tools`] answer all requests except commands. [`decision`] applies
//! the [`policy`] and the [`rules`]. An allowed command is recorded and run ([`mod@run`]) in a [`sandbox`], for which
//! this program starts itself again as a helper. [`decision`] then decides about each program that a command line
//! starts.
//!
//! Dependencies: `verbs -> tools -> run -> decision -> guard -> {git_dir, rules} -> policy -> {names, sandbox, request,
//! refusal} -> files -> nofollow`. `changes` keeps files and lists their changes for `run` and `tools`. Every module may
//! use `data`, `digest` and `glob`.

mod changes;
mod data;
mod decision;
mod digest;
mod exec_result;
mod file_id;
mod files;
mod git_dir;
mod glob;
mod guard;
mod hook;
mod hosts;
mod names;
mod nofollow;
mod policy;
mod refusal;
mod request;
mod rules;
mod run;
pub mod sandbox;
#[cfg(test)]
mod schemas;
mod serde_paths;
mod tools;
mod verbs;

use cp_common::program::{Credentials, Program};
use cp_common::{Code, Context, Error, Result};

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
    Check(verbs::check::Args),
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
    verbs: &[
        verbs::run::DOC,
        verbs::agent::DOC,
        verbs::check::DOC,
        verbs::policy::SHOW,
        verbs::policy::init::DOC,
        verbs::allow::DOC,
        verbs::approve::DOC,
        verbs::undo::DOC,
        verbs::hook::answer::DOC,
        verbs::hook::install::INSTALL,
        verbs::hook::doctor::DOC,
        verbs::hook::install::REMOVE,
        verbs::hook::shell::DOC,
    ],
    groups: &[],
    environment: &[
        ("CLAUDE_CODE_ENTRYPOINT", "The way in which Claude Code was started, for `hook claude`; set by Claude Code"),
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
    schemas: &[
        ("approvals", include_str!("../schemas/approvals.json")),
        ("decision", include_str!("../schemas/decision.json")),
        ("exec_result", include_str!("../schemas/exec_result.json")),
        ("hook_changed", include_str!("../schemas/hook_changed.json")),
        ("hook_answer", include_str!("../schemas/hook_answer.json")),
        ("item", include_str!("../schemas/item.json")),
        ("policy", include_str!("../schemas/policy.json")),
        ("policy_changed", include_str!("../schemas/policy_changed.json")),
        ("run_undone", include_str!("../schemas/run_undone.json")),
    ],
    checks: verbs::doctor::checks,
    credentials: |_| Credentials::none_needed(),
    audit: cp_ledger::audit,
};

/// Runs the verb the user asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    if sandbox::is_inside() {
        return match cli.verb {
            None => verbs::run::run_inside(&cli.args, context),
            Some(Verb::Hook(args)) => verbs::hook::run_inside(&args, context),
            Some(_) => Err(sandbox_refusal()),
        };
    }
    match cli.verb {
        None => verbs::run::run(&cli.args, context),
        Some(Verb::Agent(args)) => verbs::agent::run(&args, context),
        Some(Verb::Check(args)) => verbs::check::run(&args, context),
        Some(Verb::Policy(args)) => verbs::policy::run(&args, context),
        Some(Verb::Allow(args)) => verbs::allow::run(&args, context),
        Some(Verb::Approve(args)) => verbs::approve::run(&args, context),
        Some(Verb::Undo(args)) => verbs::undo::run(&args, context),
        Some(Verb::Hook(args)) => verbs::hook::run(&args, context),
    }
}

/// The refusal of all but commands and hooks.
pub(crate) fn sandbox_refusal() -> Error {
    Error::new(Code::Forbidden, "inside a cp-exec sandbox cp-exec executes a command, and nothing else")
        .with("rule", "inside")
        .hint("run the command itself; run other verbs outside of the sandbox")
}
