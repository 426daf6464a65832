//! `cp-mcp`: bridge these programs and the Model Context Protocol.
//!
//! The client is at standard input and output, and only the protocol is written there. The main thread reads the lines
//! of both sides, handles them, and writes to the client ([`stdio`]). [`serve`] answers by running our programs; [`gate`]
//! checks and records the calls to another server, which is a process ([`proxy`]) or reached over HTTP ([`connect`]). For
//! [`call`] the client is in this process, and the streams have records.

mod call;
mod connect;
mod gate;
mod proxy;
mod record;
mod serve;
mod stdio;

#[cfg(test)]
mod schemas;

use cp_common::program::Program;
use cp_common::{Context, Result};

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-mcp",
    about: "bridge these programs and the Model Context Protocol",
    risk_tier: "T2",
    compliance: None,
    verbs: &[serve::DOC, call::DOC, proxy::DOC, connect::DOC],
    groups: &[],
    environment: &[],
    schemas: cp_common::schemas!(item),
    checks: |_| Vec::new(),
    credentials: None,
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
    Serve(serve::Args),
    Call(call::Args),
    Proxy(proxy::Args),
    Connect(connect::Args),
}

/// Runs the verb of the command line.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Serve(args) => serve::run(&args, context),
        Verb::Call(args) => call::run(&args, context),
        Verb::Proxy(args) => proxy::run(&args, context),
        Verb::Connect(args) => connect::run(&args, context),
    }
}
