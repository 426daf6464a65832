//! `cp-exec hook install` and `hook remove`: add the hook to the configuration of a host, or remove it, after a preview
//! and confirmation. Other entries stay unchanged.

use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::coprocess::{cmd, on_path};
use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result};
use cp_hosts::{Edit, Exclude, Host, Place, change, own};

use super::doctor::{person, test_routes};
use crate::hosts::{Command, HookHost, add_hook, remove_hook, shell};

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

/// The configuration to change.
#[derive(clap::Args)]
pub(crate) struct EditArgs {
    /// The agent
    #[arg(value_name = "HOST", value_enum)]
    host: HookHost,
    /// The configuration of a project, not your own
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    #[command(flatten)]
    write: WriteOptions,
}

impl EditArgs {
    fn agent(&self) -> cp_hosts::Args {
        let place = Place { host: self.host.agent(), project: self.project.clone() };
        cp_hosts::Args { place, write: self.write.clone() }
    }
}

/// Put the hook into the configuration of a host
#[derive(clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    args: EditArgs,
    /// Do not start the host afterwards to test its routes
    #[arg(long)]
    no_check: bool,
}

pub(super) fn install(InstallArgs { args, no_check }: &InstallArgs, context: &mut Context) -> Result<()> {
    let host = args.host;
    let (program, home) = own(context)?;
    let command = Command { host, program: &program, home: &home };
    let next = Some(match host {
        HookHost::Codex => "start codex and trust the hook (/hooks): until then codex passes it over",
        HookHost::Claude => "run `cp-exec hook doctor`, which tries each route of the host",
    });
    let script = (host == HookHost::Claude).then(|| (shell::file(Path::new(&home)), shell::text(&command)));
    let project = args.project.clone();
    let check = |context: &Context| test_routes(host, project.clone(), context);
    let edit = Edit { next, script, check: (!no_check).then_some(&check), ..edit(&INSTALL, args, context)? };
    change(&edit, &args.agent(), context, |text| add_hook(&command, text).map(Some))
}

pub(super) fn remove(args: &EditArgs, context: &mut Context) -> Result<()> {
    let host = args.host;
    let edit = edit(&REMOVE, args, context)?;
    change(&edit, &args.agent(), context, |text| text.map_or(Ok(None), |text| remove_hook(host, text)))
}

fn edit(doc: &'static VerbDoc, args: &EditArgs, context: &Context) -> Result<Edit<'static>> {
    let (host, person) = (args.host, person(context)?);
    let file = args.project.as_ref().map(|project| host.file(Some(Path::new("")), project));
    let exclude = args.project.as_deref().zip(file).and_then(|(project, file)| exclude(project, &file));
    Ok(Edit {
        verb: doc,
        resource: "hook",
        next: None,
        person,
        file: match host {
            HookHost::Claude => |_: Host, project, home| HookHost::Claude.file(project, home),
            HookHost::Codex => |_: Host, project, home| HookHost::Codex.file(project, home),
        },
        script: None,
        exclude: exclude.map(|(file, pattern)| Exclude { file, pattern, is_added: doc.path == INSTALL.path }),
        check: None,
    })
}

/// The file in which the repository of a project names what git leaves out, and the line for a file of the project;
/// `None` without a repository. The hook names paths of this machine, so that nobody else can use it.
fn exclude(project: &Path, file: &Path) -> Option<(PathBuf, String)> {
    let asked = ["-c", "safe.directory=*", "rev-parse", "--git-path", "info/exclude", "--show-prefix"];
    let git = cmd(on_path("git")?, asked).dir(project).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    let text = git.stderr_null().read().ok()?;
    let mut lines = text.lines();
    let (list, prefix) = (lines.next()?, lines.next().unwrap_or_default());
    let path = format!("/{prefix}{}", file.display());
    let is_special = |c: &char| "\\*?[]".contains(*c);
    let escaped = path.chars().flat_map(|c| [Some('\\').filter(|_| is_special(&c)), Some(c)]).flatten();
    Some((project.canonicalize().ok()?.join(list), escaped.collect()))
}
