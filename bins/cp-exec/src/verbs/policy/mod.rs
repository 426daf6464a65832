//! `cp-exec policy`: show what holds, write a starter, and test the rules.

pub(crate) mod init;
pub(crate) mod show;
pub(crate) mod test;

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
    /// Write a commented starter policy, if there is none
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
