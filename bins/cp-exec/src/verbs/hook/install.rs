//! `cp-exec hook install`.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook install",
    class: Class::Query,
    output: "item",
    examples: &["{} hook install"],
    ..VerbDoc::EMPTY
};

/// Put the hook into a host's configuration
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    #[arg(value_name = "HOST", value_enum)]
    host: crate::hook::Host,
}

pub(super) fn run(args: &Args, _context: &mut Context) -> Result<()> {
    Err(Error::usage(format!("not there yet: {:?}", args.host)))
}
