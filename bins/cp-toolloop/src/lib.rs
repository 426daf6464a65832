//! Let a model use tools until it is done: within limits, on the record, and so that it can be stopped at any instant and go on.
//!
//! [`mod@run`] makes a [`plan`] of each prompt and the [`catalogue`] of tools; the [`engine`] asks the [`model`] and carries out what it
//! calls ([`dispatch`], [`executor`]). Each step goes to the [`journal`], which a resume goes on from, and to the [`book`], the run's ledger.

mod agent;
mod approval;
mod arguments;
mod book;
mod bound;
mod builtin;
mod cancel;
mod catalogue;
mod conversation;
mod delegate;
mod describe;
mod dispatch;
mod engine;
mod event;
mod executor;
mod journal;
mod links;
mod mcp;
mod model;
mod place;
mod plan;
mod repeat;
mod replay;
mod resume;
mod run;
mod runs;
#[cfg(test)]
mod schemas;
mod show;
mod tally;
mod tool;
mod tools;

use cp_common::program::{Check, Class, Credentials, Program, Status, VerbDoc};
use cp_common::wire::schemas as wire;
use cp_common::{Context, Result};

/// A run that stops at its limit, and goes on.
const RESUME: &str = r#"printf '{"tool_calls":[{"name":"nope"}]}\n' >script; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello; cp-toolloop resume RUN- --max-iterations 2"#;
/// A run that stops at its limit, and is ended.
const CANCEL: &str = r#"printf '{"tool_calls":[{"name":"nope"}]}\n' >script; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello; cp-toolloop cancel RUN-"#;

const fn verb(path: &'static str, class: Class, output: &'static str, examples: &'static [&'static str]) -> VerbDoc {
    VerbDoc { path, class, output, examples, dangerous: false }
}

/// What this program says of itself.
pub static PROGRAM: Program = Program {
    name: "cp-toolloop",
    about: "let a model use tools until it is done, within budgets",
    risk_tier: "T2",
    verbs: &[
        verb("", Class::Governed, "message", &["cp-toolloop --backend stub -- 'How full is the disk?'"]),
        verb(
            "tools",
            Class::Query,
            "tools",
            &["cp-toolloop tools", "cp-toolloop tools --allow system --fields name,origin,status"],
        ),
        verb("runs", Class::Query, "runs", &["cp-toolloop --backend stub -- hello && cp-toolloop runs --limit 1"]),
        verb("show", Class::Query, "run", &["cp-toolloop --backend stub -- hello && cp-toolloop show RUN-"]),
        verb("resume", Class::Governed, "message", &[RESUME]),
        verb("cancel", Class::Governed, "cancelled", &[CANCEL]),
    ],
    implicit: Some("run"),
    schemas: &[
        wire::MESSAGE,
        wire::DELTA,
        wire::TOOL_CALL,
        wire::TOOL_RESULT,
        ("item", include_str!("../schemas/item.json")),
        ("tools", include_str!("../schemas/tools.json")),
        ("runs", include_str!("../schemas/runs.json")),
        ("run", include_str!("../schemas/run.json")),
        ("cancelled", include_str!("../schemas/cancelled.json")),
    ],
    checks,
    credentials: |_| Credentials { configured: true, sources: Vec::new() },
    audit: cp_ledger::audit,
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
    Run(Box<run::Args>),
    Resume(resume::Args),
    Tools(tools::Args),
    Runs(runs::Args),
    Show(show::Args),
    Cancel(cancel::Args),
}

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Run(args) => run::run(&args, context),
        Verb::Resume(args) => resume::run(&args, context),
        Verb::Tools(args) => tools::run(&args, context),
        Verb::Runs(args) => runs::run(&args, context),
        Verb::Show(args) => show::run(&args, context),
        Verb::Cancel(args) => cancel::run(&args, context),
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
