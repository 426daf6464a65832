//! `cp-exec hook install` and `hook remove`: add the hook to the configuration of a host, or remove it, after a preview
//! and confirmation, and record that in the ledger. Other entries stay unchanged.

use std::path::{Path, PathBuf};

use cp_common::context::given;
use cp_common::context::options::WriteOptions;
use cp_common::coprocess::{cmd, on_path};
use cp_common::home::resolved;
use cp_common::program::confirm;
use cp_common::program::{Class, VerbDoc};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::Entry;

use crate::files::Pending;
use crate::hosts::{Command, Host, with_hook};
use crate::verbs::edit::{self, Edit};

pub(crate) const INSTALL: VerbDoc = VerbDoc {
    examples: &["{} hook install claude --project . --dry-run"],
    events: &["hook.install"],
    ..VerbDoc::new("hook install", Class::Write, "edited")
};

pub(crate) const REMOVE: VerbDoc = VerbDoc {
    path: "hook remove",
    examples: &["{} hook remove claude --project ."],
    events: &["hook.remove"],
    ..INSTALL
};

/// Put the hook into the configuration of a host
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    #[arg(value_name = "HOST", value_parser = Host::hooked())]
    host: Host,
    /// The configuration of a project, not your own
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    #[command(flatten)]
    write: WriteOptions,
}

/// The changes that put a hook into the configuration in a file, or take it out: those that it needs, and its own.
pub(super) fn edits(file: &Path, host: Host, added: Option<&Command>) -> Result<(Vec<Pending>, Pending)> {
    let own = edit::of_text(file, None, |text| match text.or(added.map(|_| "")) {
        Some(text) => with_hook(host, text, added),
        None => Ok(None),
    })?;
    let shell = |command: &Command| {
        edit::of_text(&resolved(&command.shell_file()), Some(0o755), |_| Ok(Some(command.shell_text())))
    };
    let shell = added.filter(|_| host == Host::Claude).map(shell).transpose()?;
    Ok((shell.into_iter().collect(), own))
}

/// Adds the hook, or removes it.
pub(super) fn change(args: &Args, verb: &VerbDoc, context: &mut Context) -> Result<()> {
    let host = args.host;
    let added = (verb.path == INSTALL.path).then(|| Command::of(host, context)).transpose()?;
    let project = args.project.as_deref().map(|given| given::directory("--project", given)).transpose()?;
    let file = resolved(&host.hook_file(project.as_deref()));
    let own = resolved(&host.hook_file(None));
    if project.is_some() && added.is_some() && own != file && has_hook(host, &own)? {
        return Err(Error::new(Code::Conflict, "your own configuration has the hook, for all projects")
            .in_file(&own)
            .hint(format!("`cp-exec hook remove {}` takes it out there", host.name())));
    }
    let excluded = project.as_deref().and_then(|project| exclude(project, host));
    for file in excluded.iter().map(|(list, _)| list).chain([&file]) {
        cp_policy::check_writable(&context.home, file)?;
    }
    confirm::write(verb, &(host, file.clone()), &args.write, context, |_| {
        let (mut others, file) = edits(&file, host, added.as_ref())?;
        if let Some((list, line)) = &excluded {
            others.push(edit::of_text(list, None, |text| Ok(with_line(text, line, added.is_some())))?);
        }
        let mut edit = Edit::of(Entry::new(verb.events[0]).with("host", &host), others, file);
        edit.answer.project = project.map(|project| project.display().to_string());
        edit.answer.notes.extend(added.map(|_| host.facts().hook.next.clone()));
        edit.plan()
    })
}

/// True if a configuration has the hook.
pub(super) fn has_hook(host: Host, file: &Path) -> Result<bool> {
    std::fs::read_to_string(file).map_or(Ok(false), |text| Ok(with_hook(host, &text, None)? != Some(text)))
}

/// The file in which the repository of a project names what git leaves out, and the line for the hook's file; `None`
/// without a repository. The hook names paths of this machine, so that nobody else can use it.
fn exclude(project: &Path, host: Host) -> Option<(PathBuf, String)> {
    let asked = ["-c", "safe.directory=*", "rev-parse", "--git-path", "info/exclude"];
    let git = cmd(on_path("git")?, asked).dir(project).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    let list = git.stderr_null().read().ok()?;
    let line = format!("**/{}", host.hook_file(Some("".as_ref())).display());
    Some((resolved(&project.join(list.lines().next()?)), line))
}

/// The text with a line at its end, or without it; `None` if there is no text.
fn with_line(text: Option<&str>, line: &str, is_added: bool) -> Option<String> {
    let others = text.unwrap_or_default().lines().filter(|own| *own != line);
    let lines: String = others.chain(is_added.then_some(line)).flat_map(|line| [line, "\n"]).collect();
    (text.is_some() || is_added).then_some(lines)
}
