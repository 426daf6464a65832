//! `cp-exec hook`: answers a host's question about a tool call, and adds the hook to the host's configuration.

pub(crate) mod answer;
mod decided;
pub(crate) mod doctor;
mod inside;
pub(crate) mod install;
pub(crate) mod shell;

use cp_common::{Context, Error, Result};

use crate::hosts::Host;

/// Decide about the tool calls of another agent, or configure its hook
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent that asks: its question is one JSON object on standard input
    #[arg(value_name = "HOST", value_parser = Host::hooked())]
    host: Option<Host>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    Install(install::Args),
    Doctor(doctor::Args),
    /// Take the hook out of the configuration of a host
    Remove(install::Args),
    Shell(shell::Args),
}

/// Answers a hook inside a sandbox. The other verbs are not available there.
pub(crate) fn run_inside(args: &Args, context: &mut Context) -> Result<()> {
    match (&args.verb, args.host) {
        (None, Some(host)) => inside::run(host, context),
        (Some(Verb::Shell(args)), _) => Err(shell::run_inside(args)),
        _ => Err(crate::sandbox_refusal()),
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match (&args.verb, args.host) {
        (Some(Verb::Install(args)), _) => install::install(args, context),
        (Some(Verb::Doctor(args)), _) => doctor::run(args, context),
        (Some(Verb::Remove(args)), _) => install::remove(args, context),
        (Some(Verb::Shell(args)), _) => shell::run(args, context),
        (None, Some(host)) => answer::run(host, context),
        (None, None) => Err(Error::usage("which agent asks?").hint("cp-exec hook claude or cp-exec hook codex")),
    }
}
