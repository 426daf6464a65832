//! `cp-exec hook remove`: removes the hook from the configuration of a host.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result};
use cp_hosts::{Args, Edit, change};

use super::install::person;
use crate::hosts::{file_of, remove_hook};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook remove",
    class: Class::Write,
    output: "hook_changed",
    examples: &["{} hook remove claude --project ."],
    events: &["hook.remove"],
    ..VerbDoc::EMPTY
};

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let edit = Edit {
        verb: DOC.path,
        event: "hook.remove",
        resource: "hook",
        next: None,
        person: person(context)?,
        file: file_of,
    };
    change(&edit, args, context, |text| text.map_or(Ok(None), |text| remove_hook(host, text)))
}
