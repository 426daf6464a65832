//! Batches: prompts that a provider answers within a day, for half the price.
//!
//! A [`job`] is stored below `state/batches` of the home, with members that the provider does not get. [`client`] implements the two batch APIs.

mod client;
mod fetch;
pub(crate) mod job;
mod poll;
mod submit;

use cp_common::program::VerbDoc;
use cp_common::{Context, Result};

/// The entries of these verbs in `reference`.
pub(crate) const DOCS: [VerbDoc; 4] = [submit::DOC, poll::POLL, fetch::DOC, poll::CANCEL];

/// Let a provider answer prompts later, for less
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Submit(Box<submit::Args>),
    Poll(poll::PollArgs),
    Fetch(fetch::Args),
    Cancel(poll::CancelArgs),
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Submit(args) => submit::run(args, context),
        Verb::Poll(args) => poll::poll(args, context),
        Verb::Fetch(args) => fetch::run(args, context),
        Verb::Cancel(args) => poll::cancel(args, context),
    }
}
