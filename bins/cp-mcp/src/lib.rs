//! `cp-mcp`: bridge these programs and the Model Context Protocol.
//!
//! The client is at standard input and output, and only the protocol is written there. One thread reads the client's lines, and the main
//! thread handles them and writes ([`stdio`]). [`serve`] answers by running our programs; [`gate`] checks and records the calls to another
//! server, which is a process ([`proxy`]) or reached over HTTP ([`http`]).

mod gate;
mod hosts;
mod http;
mod proxy;
mod record;
mod serve;
mod stdio;

#[cfg(test)]
mod schemas;

use cp_common::program::{Credentials, Program};
use cp_common::{Context, Result};

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-mcp",
    about: "bridge these programs and the Model Context Protocol",
    risk_tier: "T2",
    verbs: &[serve::DOC, proxy::DOC, http::DOC, hosts::INSTALL, hosts::REMOVE],
    implicit: None,
    groups: &[("Speak the protocol", &["serve", "proxy", "connect"]), ("Set up a host", &["install", "remove"])],
    doctor: &[],
    environment: &[
        ("CLAUDE_CONFIG_DIR", "The directory of the configuration of Claude Code"),
        ("CODEX_HOME", "The directory of the configuration of Codex"),
        ("COPILOT_HOME", "The directory of the configuration of Copilot"),
        ("GEMINI_CLI_HOME", "The directory whose `.gemini` has the settings of Gemini CLI"),
        ("XDG_CONFIG_HOME", "The directory whose `opencode` has the configuration of opencode"),
    ],
    schemas: &[
        ("item", include_str!("../schemas/item.json")),
        ("host_changed", include_str!("../schemas/host_changed.json")),
    ],
    checks: hosts::checks,
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
    Serve(serve::Args),
    Proxy(proxy::Args),
    Connect(http::Args),
    /// Add this server to the configuration of a host
    Install(cp_hosts::Args),
    /// Remove this server from the configuration of a host
    Remove(cp_hosts::Args),
}

/// Runs the verb of the command line.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Serve(args) => serve::run(&args, context),
        Verb::Proxy(args) => proxy::run(&args, context),
        Verb::Connect(args) => http::run(&args, context),
        Verb::Install(args) => hosts::install(&args, context),
        Verb::Remove(args) => hosts::remove(&args, context),
    }
}
