//! `cp-exec hook install`: adds the hook to the configuration of a host, after a preview and confirmation. Other
//! entries stay unchanged.

use std::path::PathBuf;

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result};
use cp_hosts::{Args, Edit, Host, change, own};

use crate::hosts::{Command, add_hook, file_of};
use crate::policy;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook install",
    class: Class::Write,
    output: "hook_changed",
    examples: &["{} hook install claude --project . --dry-run"],
    events: &["hook.install"],
    ..VerbDoc::EMPTY
};

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let (program, home) = own(context)?;
    let command = Command { host, program: &program, home: &home };
    let next =
        (host == Host::Codex).then_some("start codex and trust the hook (/hooks): until then codex passes it over");
    let edit =
        Edit { verb: DOC.path, event: "hook.install", resource: "hook", next, person: person(context)?, file: file_of };
    change(&edit, args, context, |text| add_hook(&command, text).map(Some))
}

/// The home directory of the user, as the hosts determine it.
pub(super) fn person(context: &Context) -> Result<PathBuf> {
    cp_hosts::person().map_or_else(|| policy::load(&context.home.policy_file()).map(|loaded| loaded.home), Ok)
}
