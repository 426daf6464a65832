//! Run a command under policy, sandboxed, on the record.
//!
//! A request is read strictly ([`request`]), decided about ([`decide`]), pinned to one file ([`names`]), put on the
//! ledger ([`journal`]) and run ([`engine`]) in a sandbox that this program builds by starting itself again ([`sandbox`]).

mod capture;
mod decide;
mod engine;
mod environment;
mod execute;
mod files;
mod governor;
mod intent;
mod journal;
mod machine;
mod names;
mod patterns;
mod policy;
mod request;
mod rules;
mod run;
pub mod sandbox;
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
}

/// What the program is.
pub static PROGRAM: Program = Program {
    name: "cp-exec",
    about: "Run a command under policy, sandboxed, on the record",
    risk_tier: "T2",
    verbs: &[VerbDoc {
        path: "",
        class: Class::Governed,
        output: "exec_result",
        examples: &[r#"echo '{"tool":"system","operation":"get_info"}' | cp-exec"#],
        dangerous: false,
    }],
    implicit: Some("run"),
    schemas: &[cp_common::schemas::EXEC_RESULT],
    checks: |_| Vec::new(),
    credentials: |_| Credentials { configured: true, sources: Vec::new() },
    audit: cp_log::effect::audit,
};

/// Runs the verb the user asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Run(args) => run::run(&args, context),
    }
}
