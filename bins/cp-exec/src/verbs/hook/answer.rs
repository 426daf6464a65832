//! `cp-exec hook HOST`: a host's question about a tool call, answered in its words.

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::{Context, Error, Result};

use crate::hook::Host;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook",
    class: Class::Governed,
    output: "item",
    examples: &["{} hook claude"],
    input: &[Input::Bytes],
    ..VerbDoc::EMPTY
};

pub(super) fn run(host: Host, _context: &mut Context) -> Result<()> {
    Err(Error::usage(format!("not there yet: {host:?}")))
}
