//! `cp-exec hook install` and `hook remove`: add the hook to the configuration of a host, or remove it, after a preview
//! and confirmation, and record that in the ledger. Other entries stay unchanged.

use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::coprocess::{cmd, on_path};
use cp_common::home::resolved;
use cp_common::program::confirm::{self, Change, Plan};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::files::Pending;
use crate::hosts::{Command, Host, add_hook, remove_hook};
use crate::tools::filesystem::pending;

pub(crate) const INSTALL: VerbDoc = VerbDoc {
    examples: &["{} hook install claude --project . --dry-run"],
    events: &["hook.install"],
    ..VerbDoc::new("hook install", Class::Write, "hook_changed")
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

/// The result of a change.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "hook_changed"))]
pub(crate) struct Changed {
    /// The agent.
    host: String,
    /// Its file.
    file: String,
    /// True if the file was changed by this run.
    #[serde(rename = "changed")]
    is_new: bool,
    /// The hash of the file; null if it is gone.
    sha256: Option<String>,
    /// The next step for the user.
    next: Option<String>,
}

impl Reply for Changed {
    fn text(&self) -> String {
        let how = if self.is_new { "changed" } else { "unchanged" };
        let next = self.next.iter().map(|next| format!("\n{next}"));
        next.fold(format!("{how} {}", self.file), |text, next| text + &next)
    }
}

/// The changes that put a hook into the configuration in a file, or take it out: the configuration first.
pub(super) fn edits(file: &Path, host: Host, added: Option<&Command>) -> Result<Vec<Pending>> {
    let mut edits = vec![edit(file, None, |text| match added {
        Some(command) => add_hook(command, text).map(Some),
        None => text.map_or(Ok(None), |text| remove_hook(host, text)),
    })?];
    if let Some(command) = added.filter(|_| host == Host::Claude) {
        edits.push(edit(&resolved(&command.shell_file()), Some(0o755), |_| Ok(Some(command.shell_text())))?);
    }
    Ok(edits)
}

/// Adds the hook, or removes it.
pub(super) fn change(args: &Args, verb: &VerbDoc, context: &mut Context) -> Result<()> {
    let host = args.host;
    let added = (verb.path == INSTALL.path).then(|| Command::of(host, context)).transpose()?;
    let real =
        |path: &PathBuf| path.canonicalize().map_err(|e| Error::not_found(format!("the project: {e}")).in_file(path));
    let project = args.project.as_ref().map(real).transpose()?;
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
        let mut edits = edits(&file, host, added.as_ref())?;
        let [before, after] = edits[0].hashes().map(|hash| hash.map(|hash| hash.to_string()));
        if let Some((list, line)) = &excluded {
            edits.push(edit(list, None, |text| Ok(with_line(text, line, added.is_some())))?);
        }
        edits.retain(Pending::is_change);
        let answer = Changed {
            host: host.name().to_owned(),
            file: file.display().to_string(),
            is_new: !edits.is_empty(),
            sha256: after.clone(),
            next: added.as_ref().map(|_| host.facts().hook.next.clone()),
        };
        if !answer.is_new {
            return Plan::nothing(answer);
        }
        let changes = edits.iter().map(|edit| shown(edit, verb.path)).collect::<Result<Vec<_>>>()?;
        Plan::changes(changes, move |context| {
            let entry = Entry::new(verb.events[0]).with("host", &host).with("file", &answer.file);
            let mut ledger = effect_ledger(context, &format!("{}.jsonl", context.program))?;
            ledger.append(entry.with("before", &before).with("after", &after))?;
            ledger.sync()?;
            // The configuration comes after all that it needs, and goes before it.
            if added.is_some() {
                edits.reverse();
            }
            for edit in edits {
                let directory = edit.path.parent().unwrap_or(&edit.path);
                std::fs::create_dir_all(directory)
                    .map_err(|e| Error::io("creating the directory", e).in_file(directory))?;
                edit.carry_out()?;
            }
            if after.is_none() {
                // A directory with other files stays.
                let own = resolved(&host.directory(project.as_deref()));
                let around = file.ancestors().skip(1).take_while(|directory| directory.starts_with(&own));
                around.take_while(|directory| std::fs::remove_dir(directory).is_ok()).for_each(drop);
            }
            Ok(answer)
        })
    })
}

/// True if a configuration has the hook.
pub(super) fn has_hook(host: Host, file: &Path) -> Result<bool> {
    std::fs::read_to_string(file).map_or(Ok(false), |text| Ok(remove_hook(host, &text)? != Some(text)))
}

/// The change of a file by its text, which is `None` if the file is absent.
pub(in crate::verbs) fn edit(
    path: &Path,
    permissions: Option<u32>,
    made: impl FnOnce(Option<&str>) -> Result<Option<String>>,
) -> Result<Pending> {
    let mut edit = pending(path)?;
    let text = edit.before.as_ref().map(|before| std::str::from_utf8(&before.bytes)).transpose();
    let text = text.map_err(|e| Error::new(Code::Conflict, e.to_string()).in_file(path))?;
    match made(text).map_err(|e| e.in_file(path))? {
        Some(text) => edit.put(text.into_bytes()),
        None => edit.after = None,
    }
    if let (Some(permissions), Some(after)) = (permissions, &mut edit.after) {
        after.permissions = permissions;
    }
    Ok(edit)
}

/// The change with its difference, for the preview.
fn shown(edit: &Pending, verb: &str) -> Result<Change> {
    if edit.before.as_ref().is_some_and(|before| before.permissions & 0o222 == 0) {
        return Err(Error::new(Code::Forbidden, "the file is read-only")
            .in_file(&edit.path)
            .hint("its owner can make it writable, for example with `chmod u+w`"));
    }
    let [before, after] = edit.hashes().map(|hash| hash.map(|hash| hash.to_string()));
    let action = verb.rsplit(' ').next().unwrap_or_default();
    let change = Change::new(action, "hook", edit.path.display().to_string(), json!({ "sha256": before }));
    Ok(Change { after: json!({ "sha256": after, "difference": edit.difference() }), ..change })
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
