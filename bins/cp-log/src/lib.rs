//! A tamper-evident ledger in JSON lines: the library that every program writes its effects with, and the verbs of `cp-log`.

mod append;
pub mod blob;
pub mod effect;
mod entry;
pub mod ledger;
pub mod line;
mod query;
pub mod read;
pub mod redact;
#[cfg(test)]
mod schemas;
mod select;
mod tail;
mod target;
mod tee;
mod tip;
pub mod verifier;
mod verify;

use cp_common::program::{Class, Credentials, Program, VerbDoc};
use cp_common::{Context, Result};

pub use effect::{audit, effect_ledger, effect_path};
pub use ledger::{Entry, Ledger, Receipt, Sync};

/// What `cp-log` is.
pub static PROGRAM: Program = Program {
    name: "cp-log",
    about: "keep, query and prove a tamper-evident ledger",
    risk_tier: "T1",
    verbs: &[
        VerbDoc {
            path: "append",
            class: Class::Append,
            output: "receipt",
            examples: &["{} append --event deploy 'version 7 is live'", "seq 3 | {} append --event tick --sync batch"],
            dangerous: false,
        },
        VerbDoc {
            path: "tee",
            class: Class::Append,
            output: "entry",
            examples: &["{} append --event e m | {} tee copy.jsonl"],
            dangerous: false,
        },
        VerbDoc {
            path: "query",
            class: Class::Query,
            output: "entry",
            examples: &["{} query --event deploy --limit 1", "{} query --fields seq,event"],
            dangerous: false,
        },
        VerbDoc {
            path: "tip",
            class: Class::Query,
            output: "tip",
            examples: &["{} append m && {} tip"],
            dangerous: false,
        },
        VerbDoc {
            path: "verify",
            class: Class::Query,
            output: "verified",
            examples: &["{} append m && {} verify"],
            dangerous: false,
        },
    ],
    implicit: None,
    schemas: &[
        cp_common::schemas::RECEIPT,
        ("entry", include_str!("../schemas/entry.json")),
        ("tip", include_str!("../schemas/tip.json")),
        ("verified", include_str!("../schemas/verified.json")),
    ],
    checks: target::checks,
    credentials: |_| Credentials { configured: true, sources: Vec::new() },
    audit,
};

/// Keep, query and prove a tamper-evident ledger
#[derive(Debug, clap::Parser)]
#[command(name = "cp-log", version)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Append(append::Args),
    Tee(tee::Args),
    Query(query::Args),
    Tip(tip::Args),
    Verify(verify::Args),
}

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Append(args) => append::run(&args, context),
        Verb::Tee(args) => tee::run(&args, context),
        Verb::Query(args) => query::run(&args, context),
        Verb::Tip(args) => tip::run(&args, context),
        Verb::Verify(args) => verify::run(&args, context),
    }
}
