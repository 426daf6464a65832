//! Prompts as a job of their provider: submitted now, answered within a day, for half the price.
//!
//! A [`job`] is kept below `state/batches` of the home, with what its provider is not to be given. [`provider`] speaks the two protocols
//! that there are, [`results`] finds the answer of each row in what came.

mod cancel;
mod client;
mod fetch;
pub(crate) mod job;
mod poll;
mod submit;

use cp_common::program::VerbDoc;
use cp_common::{Context, Result};

/// What the reference says of these verbs.
pub(crate) const DOCS: [VerbDoc; 4] = [submit::DOC, poll::DOC, fetch::DOC, cancel::DOC];

/// Have a provider answer prompts later, as a job, for less
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Submit(Box<submit::Args>),
    Poll(poll::Args),
    Fetch(fetch::Args),
    Cancel(cancel::Args),
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Submit(args) => submit::run(args, context),
        Verb::Poll(args) => poll::run(args, context),
        Verb::Fetch(args) => fetch::run(args, context),
        Verb::Cancel(args) => cancel::run(args, context),
    }
}
