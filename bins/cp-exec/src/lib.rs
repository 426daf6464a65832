//! Run a command under policy, sandboxed, on the record.
//!
//! A request is read strictly ([`request`]), decided about ([`decide`]), pinned to one file ([`names`]), put on the
//! ledger ([`journal`]) and run ([`engine`]) in a sandbox that this program builds by starting itself again ([`sandbox`]).

mod answers;
mod approve;
mod capabilities;
mod capture;
mod cgroup;
mod check;
mod confirm;
mod decide;
mod doctor;
mod engine;
mod environment;
mod execute;
mod files;
mod governor;
mod hashes;
mod intent;
mod journal;
mod keyed;
mod machine;
mod names;
mod patterns;
mod planning;
mod policy;
mod policy_verbs;
mod request;
mod requests;
mod rules;
mod run;
pub mod sandbox;
#[cfg(test)]
mod schemas;
mod set;
mod tools;

use cp_common::program::{Class, Credentials, Program, VerbDoc};
use cp_common::{Context, Result};

/// Run a command under policy, sandboxed, on the record
#[derive(clap::Parser)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    #[command(hide = true)]
    Run(run::Args),
    Check(check::Args),
    Policy(policy_verbs::Args),
    Approve(approve::Args),
}

const fn verb(path: &'static str, class: Class, output: &'static str, examples: &'static [&'static str]) -> VerbDoc {
    VerbDoc { path, class, output, examples, dangerous: false }
}

/// What the program is.
pub static PROGRAM: Program = Program {
    name: "cp-exec",
    about: "run a command under policy, sandboxed, on the record",
    risk_tier: "T2",
    verbs: &[
        verb(
            "",
            Class::Governed,
            "exec_result",
            &[
                r#"echo '{"tool":"system","operation":"get_info"}' | {}"#,
                "{} policy init --format raw --dry-run > p && mkdir -p \"$CP_HOME/config\" && sed 's/^allowed_commands = .*/allowed_commands = [\"echo\"]/' p > \"$CP_HOME/config/policy.toml\" && {} -- echo hello",
            ],
        ),
        verb("check", Class::Query, "decision", &["{} check -- git push --force", "{} check -c 'ls; id'"]),
        verb("policy show", Class::Query, "policy", &["{} policy show"]),
        verb("policy init", Class::Append, "policy_begun", &["{} policy init"]),
        verb("policy test", Class::Query, "policy_tested", &["{} policy test"]),
        verb("approve", Class::Append, "approvals", &["{} approve"]),
    ],
    implicit: Some("run"),
    schemas: &[
        ("approvals", include_str!("../schemas/approvals.json")),
        ("decision", include_str!("../schemas/decision.json")),
        cp_common::wire::schemas::EXEC_RESULT,
        ("item", include_str!("../schemas/item.json")),
        ("policy", include_str!("../schemas/policy.json")),
        ("policy_begun", include_str!("../schemas/policy_begun.json")),
        ("policy_tested", include_str!("../schemas/policy_tested.json")),
        cp_common::wire::schemas::PREVIEW,
        cp_common::wire::schemas::TOOL_RESULT,
    ],
    checks: doctor::checks,
    credentials: |_| Credentials { configured: true, sources: Vec::new() },
    audit: cp_ledger::audit,
};

/// Runs the verb the user asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Run(args) => run::run(&args, context),
        Verb::Check(args) => check::run(&args, context),
        Verb::Policy(args) => policy_verbs::run(&args, context),
        Verb::Approve(args) => approve::run(&args, context),
    }
}
