//! `cp-exec hook doctor`.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook doctor",
    class: Class::Query,
    output: "item",
    examples: &["{} hook doctor"],
    ..VerbDoc::EMPTY
};

/// Test that a host asks the hook
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    #[arg(value_name = "HOST", value_enum)]
    host: Option<crate::hook::Host>,
}

pub(super) fn run(args: &Args, _context: &mut Context) -> Result<()> {
    Err(Error::usage(format!("not there yet: {:?}", args.host)))
}
