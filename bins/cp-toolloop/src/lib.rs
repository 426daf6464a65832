//! Let a model use tools until it is done: within limits, on the record, and so that it can be stopped at any instant and go on.
//!
//! [`run`] makes a [`plan`] of each prompt and the [`catalogue`] of tools; the [`engine`] asks the [`model`] and carries out what it
//! calls ([`dispatch`], [`executor`]). Each step goes to the [`journal`], which a resume goes on from, and to the [`book`], the run's ledger.

mod arguments;
mod book;
mod builtin;
mod catalogue;
mod conversation;
mod describe;
mod dispatch;
mod engine;
mod event;
mod executor;
mod journal;
mod model;
mod plan;
mod repeat;
mod run;
mod seam;
mod tally;
mod tool;

use cp_common::program::{Check, Class, Credentials, Program, VerbDoc};
use cp_common::{Context, Result, schemas};

/// What this program says of itself.
pub static PROGRAM: Program = Program {
    name: "cp-toolloop",
    about: "let a model use tools until it is done, within budgets",
    risk_tier: "T2",
    verbs: &[VerbDoc {
        path: "",
        class: Class::Governed,
        output: "message",
        examples: &["cp-toolloop --backend stub -- 'How full is the disk?'"],
        dangerous: false,
    }],
    implicit: Some("run"),
    schemas: &[schemas::MESSAGE, schemas::DELTA, schemas::TOOL_CALL, schemas::TOOL_RESULT],
    checks,
    credentials: |_| Credentials { configured: true, sources: Vec::new() },
    audit: cp_log::audit,
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-toolloop")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    #[command(hide = true)]
    Run(run::Args),
}

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Run(args) => run::run(&args, context),
    }
}

fn checks(_: &mut Context) -> Vec<Check> {
    Vec::new()
}
