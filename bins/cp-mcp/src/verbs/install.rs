//! `cp-mcp install`.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Code, Context, Error, Result};

pub(crate) const DOC: VerbDoc = VerbDoc { path: "install", class: Class::Write, ..VerbDoc::EMPTY };

/// Put this server into the configuration of a host
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, _context: &mut Context) -> Result<()> {
    Err(Error::new(Code::Unknown, "to be built"))
}
