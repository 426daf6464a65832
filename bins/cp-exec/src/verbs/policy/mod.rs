//! `cp-exec policy`: show what holds, write a starter, and test the rules.

mod additions;
pub(crate) mod init;
mod project;
pub(crate) mod show;
pub(crate) mod test;
mod toolchains;

use cp_common::{Context, Result};

/// Show, start or test the policy
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
    /// Check every rule against its examples
    Test,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Show => show::run(context),
        Verb::Init(args) => init::run(args, context),
        Verb::Test => test::run(context),
    }
}
