//! The agents, and a change of an agent's configuration file: previewed, confirmed, recorded in the ledger, and applied.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::home::{resolved, write_whole};
use cp_common::program::confirm;
use cp_common::program::confirm::{Change, Gate, Write};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::{Entry, effect_ledger};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::file::{After, Pending, Present, difference, open_with};

/// The arguments of a verb that changes an agent's configuration.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration to change.
    #[command(flatten)]
    pub place: Place,
    /// The options of a write.
    #[command(flatten)]
    pub write: WriteOptions,
}

/// The configuration to change.
#[derive(clap::Args)]
pub struct Place {
    /// The agent
    #[arg(value_name = "HOST", value_enum)]
    pub host: Host,
    /// The configuration of a project, not your own
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
}

/// The result of a change.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Changed {
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

/// A check of the host that runs after a change.
pub type Check<'a> = dyn Fn(&Context) -> Result<()> + 'a;

/// The names of a change.
pub struct Edit<'a> {
    /// The verb on the command line.
    pub verb: &'a str,
    /// The event in the ledger; the action follows its last dot.
    pub event: &'a str,
    /// The resource that is added or removed.
    pub resource: &'a str,
    /// The next step for the user.
    pub next: Option<&'a str>,
    /// The user's home directory.
    pub person: PathBuf,
    /// Returns the file of a project, or of the user.
    pub file: fn(Host, Option<&Path>, &Path) -> PathBuf,
    /// A program that the configuration names, and its text. It is written before the configuration.
    pub script: Option<(PathBuf, String)>,
    /// Tests the configuration after the change. A failure does not take the change back.
    pub check: Option<&'a Check<'a>>,
}

/// Returns this program and its home as absolute paths, for an agent's configuration.
pub fn own(context: &Context) -> Result<(String, String)> {
    let program = std::env::current_exe().map_err(|e| Error::io("finding this program", e))?;
    Ok((text_of(&lasting(program))?, text_of(&resolved(context.home.root()))?))
}

/// The path of a program that an update keeps: an installed release is also `current`, beside it.
fn lasting(program: PathBuf) -> PathBuf {
    let release = program.ancestors().nth(2).filter(|release| release.file_name().is_some());
    let of_current = |release: &Path| Some(release.with_file_name("current").join(program.strip_prefix(release).ok()?));
    let kept = release.and_then(of_current).filter(|kept| kept.canonicalize().is_ok_and(|file| file == program));
    kept.unwrap_or(program)
}

fn text_of(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| Error::validation("the path is not UTF-8").in_file(path))
}

/// Returns the user's home directory, as the agents determine it.
pub fn person() -> Option<PathBuf> {
    named("HOME")
}

/// Changes or removes an agent's file behind the gate of a write, and records the change in the ledger.
pub fn change(
    edit: &Edit<'_>,
    Args { place, write }: &Args,
    context: &mut Context,
    made: impl FnOnce(Option<&str>) -> Result<Option<String>>,
) -> Result<()> {
    let host = place.host;
    let absolute = |project: &PathBuf| {
        project.canonicalize().map_err(|e| Error::not_found(format!("the project: {e}")).in_file(project))
    };
    let project = place.project.as_ref().map(absolute).transpose()?;
    let file = resolved(&(edit.file)(host, project.as_deref(), &edit.person));
    context.home.check_writable(&file)?;
    let asked = Write { verb: edit.verb, arguments: &(host, &file), dangerous: false };
    confirm::write(&asked, write, context, |gate: Gate<'_, _>, context| {
        let before = present(&file)?;
        let text = before.as_ref().map(|before| std::str::from_utf8(&before.bytes)).transpose();
        let text = text.map_err(|e| Error::new(Code::Conflict, e.to_string()).in_file(&file))?;
        let after = made(text).map_err(|e| e.in_file(&file))?;
        let hash = |text: Option<&str>| text.map(|text| Hash::of(text.as_bytes()).to_string());
        let (old, new) = (hash(text), hash(after.as_deref()));
        let name = file.display().to_string();
        let stale =
            edit.script.as_ref().filter(|(path, text)| std::fs::read_to_string(path).ok().as_ref() != Some(text));
        let changed = old != new || stale.is_some();
        let answer = Changed {
            host: host.name().to_owned(),
            file: name.clone(),
            is_new: changed,
            sha256: new.clone(),
            next: edit.next.map(str::to_owned),
        };
        if !changed {
            gate.nothing_to_do()?;
            return Ok(Some(answer));
        }
        if before.as_ref().is_some_and(|before| before.permissions & 0o222 == 0) {
            return Err(Error::new(Code::Forbidden, "the file is read-only")
                .in_file(&file)
                .hint("its owner can make it writable, for example with `chmod u+w`"));
        }
        let shown = difference(
            [&name; 2],
            text.unwrap_or_default().as_bytes(),
            after.as_deref().unwrap_or_default().as_bytes(),
        );
        let what = Change {
            action: edit.event.rsplit('.').next().unwrap_or_default().to_owned(),
            resource: edit.resource.to_owned(),
            id: name.clone(),
            before: json!({ "sha256": old }),
            after: json!({ "sha256": new, "difference": shown }),
        };
        if !gate.pass(vec![what], context)? {
            return Ok(None);
        }
        let entry = Entry::new(edit.event)
            .with("host", &host)
            .with("file", &name.as_str())
            .with("before", &old)
            .with("after", &new);
        let mut ledger = effect_ledger(context, &format!("{}.jsonl", context.program))?;
        ledger.append(entry)?;
        ledger.sync()?;
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(|e| Error::io("creating the directory", e).in_file(parent))?;
        }
        if let Some((path, text)) = stale {
            write_whole(path, text.as_bytes())?;
            let permissions = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(path, permissions)
                .map_err(|e| Error::io("making it executable", e).in_file(path))?;
        }
        let after = after.map(|text| After::new(text.into_bytes(), None));
        let is_removed = after.is_none();
        Pending { path: file.clone(), mode: "overwrite", before, after }.carry_out()?;
        if is_removed {
            // A directory with other files stays.
            let own = resolved(&host.directory(project.as_deref(), &edit.person));
            let around = file.ancestors().skip(1).take_while(|directory| directory.starts_with(&own));
            around.take_while(|directory| std::fs::remove_dir(directory).is_ok()).for_each(drop);
        }
        edit.check.map_or(Ok(()), |check| check(context)).map_err(|e| e.with("changed", name))?;
        Ok(Some(answer))
    })
}

/// Opens a file at a path without links; `None` if it does not exist.
fn present(path: &Path) -> Result<Option<Present>> {
    match open_with(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK) {
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(Error::io("cannot be read", e).in_file(path)),
        Ok(file) => Present::read(File::from(file), path).map(Some),
    }
}

/// A third-party coding agent, which runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// GitHub Copilot CLI
    Copilot,
    /// opencode
    Opencode,
}

impl Host {
    /// Returns the name on the command line and in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::Opencode => "opencode",
        }
    }

    /// Returns its directory in a project, else that of the user, whose home directory is `home`.
    pub fn directory(self, project: Option<&Path>, home: &Path) -> PathBuf {
        let name = match self {
            Self::Claude => ".claude",
            Self::Codex => ".codex",
            Self::Gemini => ".gemini",
            Self::Copilot if project.is_some() => ".github",
            Self::Copilot => ".copilot",
            Self::Opencode => ".opencode",
        };
        if let Some(project) = project {
            return project.join(name);
        }
        let own = match self {
            Self::Claude => named("CLAUDE_CONFIG_DIR"),
            Self::Codex => named("CODEX_HOME"),
            Self::Gemini => named("GEMINI_CLI_HOME").map(|home| home.join(name)),
            Self::Copilot => named("COPILOT_HOME"),
            Self::Opencode => Some(named("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("opencode")),
        };
        own.unwrap_or_else(|| home.join(name))
    }
}

/// Returns the path in an environment variable; `None` if it is empty.
pub fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn written_path_of_program_outlives_its_release() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let release = |version: &str| {
            let bin = root.join("lib/cp-tools").join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("cp-exec"), version).unwrap();
            bin.join("cp-exec")
        };
        let (old, new) = (release("0.1.0"), release("0.2.0"));
        assert_eq!(lasting(old.clone()), old, "no release is current: a build directory");
        let current = root.join("lib/cp-tools/current");
        symlink("0.1.0", &current).unwrap();
        let written = lasting(old.clone());
        assert_eq!((&written, lasting(new.clone())), (&current.join("bin/cp-exec"), new.clone()));
        std::fs::remove_file(&current).unwrap();
        symlink("0.2.0", &current).unwrap();
        std::fs::remove_dir_all(old.ancestors().nth(2).unwrap()).unwrap();
        assert_eq!(written.canonicalize().unwrap(), new);
    }
}
