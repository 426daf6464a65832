//! `cp-mcp`: bridge these programs and the Model Context Protocol.
//!
//! Whoever speaks the protocol is at standard input and output, and nothing else is written there. One thread reads what comes in, the
//! main thread decides and writes ([`inbox`]). [`serve`] answers by running our programs; [`gate`] stands before another server, which is
//! a process ([`verbs::proxy`]) or far away ([`http`]).

mod verbs;

mod serve;

mod gate;

mod http;

mod hosts;

mod inbox;

mod record;

mod stdout;

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
    environment: &[
        ("CLAUDE_CONFIG_DIR", "Where Claude Code has its configuration"),
        ("CODEX_HOME", "Where Codex has its configuration"),
        ("COPILOT_HOME", "Where Copilot has its configuration"),
        ("GEMINI_CLI_HOME", "The directory whose `.gemini` has the settings of Gemini CLI"),
        ("XDG_CONFIG_HOME", "The directory whose `opencode` has the configuration of opencode"),
    ],
    schemas: &[
        ("item", include_str!("../schemas/item.json")),
        ("host_changed", include_str!("../schemas/host_changed.json")),
    ],
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
    /// Put this server into the configuration of a host
    Install(cp_hosts::Args),
    /// Take it out again
    Remove(cp_hosts::Args),
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
