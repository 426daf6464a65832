//! `cp-mcp`: bridge these programs and the Model Context Protocol.
//!
//! Whoever speaks the protocol is at standard input and output, and nothing else is written there. One thread reads what comes in, the
//! main thread decides and writes ([`inbox`]). [`serve`] answers by running our programs; [`gate`] stands before another server, which is
//! a process ([`verbs::proxy`]) or far away ([`http`]).

mod verbs;

mod serve;

mod gate;

mod http;

mod inbox;

mod record;

mod said;

#[cfg(test)]
mod schemas;

use cp_common::program::{Credentials, Program};
use cp_common::{Context, Result};

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-mcp",
    about: "bridge these programs and the Model Context Protocol",
    risk_tier: "T2",
    verbs: &[verbs::serve::DOC, verbs::proxy::DOC, verbs::connect::DOC, verbs::install::DOC, verbs::remove::DOC],
    implicit: None,
    groups: &[("Speak the protocol", &["serve", "proxy", "connect"]), ("Set up a host", &["install", "remove"])],
    doctor: &[],
    environment: &[],
    schemas: &[("item", include_str!("../schemas/item.json"))],
    checks: verbs::doctor::checks,
    credentials: |_| Credentials::none_needed(),
    audit: cp_ledger::audit,
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-mcp")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Serve(verbs::serve::Args),
    Proxy(verbs::proxy::Args),
    Connect(verbs::connect::Args),
    Install(verbs::install::Args),
    Remove(verbs::remove::Args),
}

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Serve(args) => verbs::serve::run(&args, context),
        Verb::Proxy(args) => verbs::proxy::run(&args, context),
        Verb::Connect(args) => verbs::connect::run(&args, context),
        Verb::Install(args) => verbs::install::run(&args, context),
        Verb::Remove(args) => verbs::remove::run(&args, context),
    }
}
