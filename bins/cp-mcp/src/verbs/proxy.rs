//! `cp-mcp proxy`.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Code, Context, Error, Result};

pub(crate) const DOC: VerbDoc = VerbDoc { path: "proxy", class: Class::Governed, ..VerbDoc::EMPTY };

/// Stand before a server that is started here, in the sandbox
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &mut Context) -> Result<()> {
    Err(Error::new(Code::Unknown, "to be built"))
}
