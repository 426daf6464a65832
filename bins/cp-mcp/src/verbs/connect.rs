//! `cp-mcp connect`.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Code, Context, Error, Result};

pub(crate) const DOC: VerbDoc = VerbDoc { path: "connect", class: Class::Governed, ..VerbDoc::EMPTY };

/// Stand before a server that is reached over HTTP
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &mut Context) -> Result<()> {
    Err(Error::new(Code::Unknown, "to be built"))
}
