//! `cp-mcp install` and `cp-mcp remove`: add this server to the configuration of a host, or remove it, after a confirmed difference.

use std::path::PathBuf;

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result};
use cp_hosts::{Args, Edit, Host, change, own};

use super::configured::{file_of, with_ours, without_ours};

pub(crate) const INSTALL: VerbDoc = VerbDoc {
    path: "install",
    class: Class::Write,
    output: "host_changed",
    examples: &["{} install claude --project . --dry-run"],
    events: &["mcp.install"],
    ..VerbDoc::EMPTY
};

pub(crate) fn install(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let words = argv(context)?;
    let next = args.place.project.as_ref().and(match host {
        Host::Claude => Some("start claude there: it asks once whether to use the server"),
        Host::Codex | Host::Gemini | Host::Copilot => Some("the host reads it in a directory that you have trusted"),
        Host::Opencode => None,
    });
    let edit =
        Edit { verb: INSTALL.path, event: "mcp.install", resource: "server", next, person: person()?, file: file_of };
    change(&edit, args, context, |text| with_ours(host, &words, text).map(Some))
}

pub(crate) const REMOVE: VerbDoc = VerbDoc {
    path: "remove",
    class: Class::Write,
    output: "host_changed",
    examples: &["{} remove claude --project ."],
    events: &["mcp.remove"],
    ..VerbDoc::EMPTY
};

pub(crate) fn remove(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let edit = Edit {
        verb: REMOVE.path,
        event: "mcp.remove",
        resource: "server",
        next: None,
        person: person()?,
        file: file_of,
    };
    change(&edit, args, context, |text| text.map_or(Ok(None), |text| without_ours(host, text)))
}

/// The command by which a host starts this server.
pub(super) fn argv(context: &Context) -> Result<Vec<String>> {
    let (program, home) = own(context)?;
    Ok(vec![program, "--home".to_owned(), home, "serve".to_owned()])
}

/// The home directory of the user, as the hosts find it.
pub(super) fn person() -> Result<PathBuf> {
    cp_hosts::person().ok_or_else(|| Error::config("HOME is not set").hint("set it to your directory"))
}
