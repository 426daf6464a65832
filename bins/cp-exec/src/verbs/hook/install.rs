//! `cp-exec hook install` and `hook remove`: add the hook to the configuration of a host, or remove it, after a preview
//! and confirmation. Other entries stay unchanged.

use std::path::Path;

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result};
use cp_hosts::{Args, Edit, Host, change, own};

use super::doctor::{person, test_routes};
use crate::hosts::{Command, add_hook, file_of, remove_hook, shell};

pub(crate) const INSTALL: VerbDoc = VerbDoc {
    path: "hook install",
    class: Class::Write,
    output: "hook_changed",
    examples: &["{} hook install claude --project . --dry-run"],
    events: &["hook.install"],
    ..VerbDoc::EMPTY
};

pub(crate) const REMOVE: VerbDoc = VerbDoc {
    path: "hook remove",
    examples: &["{} hook remove claude --project ."],
    events: &["hook.remove"],
    ..INSTALL
};

/// Put the hook into the configuration of a host
#[derive(clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    args: Args,
    /// Do not start the host afterwards to test its routes
    #[arg(long)]
    no_check: bool,
}

pub(super) fn install(InstallArgs { args, no_check }: &InstallArgs, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let (program, home) = own(context)?;
    let command = Command { host, program: &program, home: &home };
    let next = Some(match host {
        Host::Codex => "start codex and trust the hook (/hooks): until then codex passes it over",
        Host::Copilot => {
            "trust the directory in copilot, then run `cp-exec hook doctor copilot`, which tries each route"
        }
        Host::Claude | Host::Gemini | Host::Opencode => "run `cp-exec hook doctor`, which tries each route of the host",
    });
    let script = (host == Host::Claude).then(|| (shell::file(Path::new(&home)), shell::text(&command)));
    let project = args.place.project.clone();
    let check = |context: &Context| test_routes(host, project.clone(), context);
    let edit = Edit { next, script, check: (!no_check).then_some(&check), ..edit(&INSTALL, context)? };
    change(&edit, args, context, |text| add_hook(&command, text).map(Some))
}

pub(super) fn remove(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let edit = edit(&REMOVE, context)?;
    change(&edit, args, context, |text| text.map_or(Ok(None), |text| remove_hook(host, text)))
}

fn edit(doc: &VerbDoc, context: &Context) -> Result<Edit<'static>> {
    let person = person(context)?;
    Ok(Edit {
        verb: doc.path,
        event: doc.events[0],
        resource: "hook",
        next: None,
        person,
        file: file_of,
        script: None,
        check: None,
    })
}
