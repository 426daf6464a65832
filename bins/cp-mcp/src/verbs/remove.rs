//! `cp-mcp remove`.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Code, Context, Error, Result};

pub(crate) const DOC: VerbDoc = VerbDoc { path: "remove", class: Class::Write, ..VerbDoc::EMPTY };

/// Take it out again
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &mut Context) -> Result<()> {
    Err(Error::new(Code::Unknown, "to be built"))
}
