//! `cp-exec policy`: shows the policy in force and writes a starter.

mod additions;
pub(crate) mod init;
mod project;
pub(crate) mod show;
mod toolchains;

use cp_common::{Context, Result};

/// Show or start the policy
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show the policy in force, with its built-in defaults
    Show,
    /// Write a commented starter policy, or add what a project needs
    Init(init::Args),
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Show => show::run(context),
        Verb::Init(args) => init::run(args, context),
    }
}
