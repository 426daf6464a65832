//! `cp-mcp remove`: the configuration of a host as it was without this server.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result};
use cp_hosts::{Args, Edit, change};

use super::install::person;
use crate::hosts::{file_of, without_ours};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "remove",
    class: Class::Write,
    output: "host_changed",
    examples: &["{} remove claude --project ."],
    events: &["mcp.remove"],
    ..VerbDoc::EMPTY
};

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let edit =
        Edit { verb: DOC.path, event: "mcp.remove", resource: "server", next: None, person: person()?, file: file_of };
    change(&edit, args, context, |text| text.map_or(Ok(None), |text| without_ours(host, text)))
}
