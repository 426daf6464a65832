//! `cp-exec hook remove`.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook remove",
    class: Class::Query,
    output: "item",
    examples: &["{} hook remove"],
    ..VerbDoc::EMPTY
};

/// Take the hook out of a host's configuration
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    #[arg(value_name = "HOST", value_enum)]
    host: crate::hook::Host,
}

pub(super) fn run(args: &Args, _context: &mut Context) -> Result<()> {
    Err(Error::usage(format!("not there yet: {:?}", args.host)))
}
