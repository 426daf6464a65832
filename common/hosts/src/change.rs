//! The agents, and a change of an agent's configuration file: previewed, confirmed, recorded in the ledger, and
//! applied.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::home::{resolved, write_whole};
use cp_common::program::VerbDoc;
use cp_common::program::confirm::{self, Change, Plan};
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
    /// The verb. Its only event is recorded in the ledger; the action follows the last dot of the event.
    pub verb: &'static VerbDoc,
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
    /// The line by which the repository of a project leaves out the file.
    pub exclude: Option<Exclude>,
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
    let file = &resolved(&(edit.file)(host, project.as_deref(), &edit.person));
    cp_policy::check_writable(&context.home, file)?;
    let list = edit.exclude.as_ref().map(|exclude| resolved(&exclude.file));
    list.as_ref().map_or(Ok(()), |file| cp_policy::check_writable(&context.home, file))?;
    confirm::write(edit.verb, &(host, file), write, context, |_| {
        let edited = Edited::of(file, made)?;
        let excluded = edit.exclude.as_ref().zip(list);
        let excluded =
            excluded.map(|(exclude, file)| Edited::of(&file, |text| Ok(exclude.applied(text)))).transpose()?;
        let excluded = excluded.filter(Edited::is_changed);
        let (old, new) = edited.hashes();
        let stale =
            edit.script.as_ref().filter(|(path, text)| std::fs::read_to_string(path).ok().as_ref() != Some(text));
        let changed = edited.is_changed() || stale.is_some() || excluded.is_some();
        let answer = Changed {
            host: host.name().to_owned(),
            file: file.display().to_string(),
            is_new: changed,
            sha256: new.clone(),
            next: edit.next.map(str::to_owned),
        };
        if !changed {
            return Plan::nothing(answer);
        }
        let all = std::iter::once(&edited).chain(&excluded).map(|edited| edited.change(edit));
        let all = all.collect::<Result<Vec<_>>>()?;
        Plan::changes(all, move |context| {
            let entry = Entry::new(edit.verb.events[0])
                .with("host", &host)
                .with("file", &answer.file)
                .with("before", &old)
                .with("after", &new);
            let mut ledger = effect_ledger(context, &format!("{}.jsonl", context.program))?;
            ledger.append(entry)?;
            ledger.sync()?;
            if let Some((path, text)) = stale {
                write_whole(path, text.as_bytes())?;
                let permissions = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(path, permissions)
                    .map_err(|e| Error::io("making it executable", e).in_file(path))?;
            }
            let is_removed = edited.new.is_none();
            // The entry of the repository comes before the file that it leaves out, and goes after it.
            let (sooner, later) = if is_removed { (Some(edited), excluded) } else { (excluded, Some(edited)) };
            sooner.into_iter().chain(later).try_for_each(Edited::write)?;
            if is_removed {
                // A directory with other files stays.
                let own = resolved(&host.directory(project.as_deref(), &edit.person));
                let around = file.ancestors().skip(1).take_while(|directory| directory.starts_with(&own));
                around.take_while(|directory| std::fs::remove_dir(directory).is_ok()).for_each(drop);
            }
            let checked = edit.check.map_or(Ok(()), |check| check(context));
            checked.map_err(|e| e.with("changed", answer.file.clone())).map(|()| answer)
        })
    })
}

/// A change of a file: its text before and after, `None` if the file is absent.
struct Edited {
    path: PathBuf,
    before: Option<Present>,
    old: Option<String>,
    new: Option<String>,
}

impl Edited {
    fn of(path: &Path, made: impl FnOnce(Option<&str>) -> Result<Option<String>>) -> Result<Self> {
        let before = present(path)?;
        let old = before.as_ref().map(|before| String::from_utf8(before.bytes.clone())).transpose();
        let old = old.map_err(|e| Error::new(Code::Conflict, e.to_string()).in_file(path))?;
        let new = made(old.as_deref()).map_err(|e| e.in_file(path))?;
        Ok(Self { path: path.to_owned(), before, old, new })
    }

    fn is_changed(&self) -> bool {
        self.old != self.new
    }

    fn hashes(&self) -> (Option<String>, Option<String>) {
        let hash = |text: &Option<String>| text.as_ref().map(|text| Hash::of(text.as_bytes()).to_string());
        (hash(&self.old), hash(&self.new))
    }

    /// The change with its difference, for the preview.
    fn change(&self, edit: &Edit<'_>) -> Result<Change> {
        if self.is_changed() && self.before.as_ref().is_some_and(|before| before.permissions & 0o222 == 0) {
            return Err(Error::new(Code::Forbidden, "the file is read-only")
                .in_file(&self.path)
                .hint("its owner can make it writable, for example with `chmod u+w`"));
        }
        let (name, (old, new)) = (self.path.display().to_string(), self.hashes());
        let bytes = |text: &Option<String>| text.as_deref().unwrap_or_default().as_bytes().to_vec();
        let shown = difference([&name; 2], &bytes(&self.old), &bytes(&self.new));
        let action = edit.verb.events[0].rsplit('.').next().unwrap_or_default();
        let after = json!({ "sha256": new, "difference": shown });
        Ok(Change { after, ..Change::new(action, edit.resource, name, json!({ "sha256": old })) })
    }

    fn write(self) -> Result<()> {
        if !self.is_changed() {
            return Ok(());
        }
        if let Some(parent) = self.path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| Error::io("creating the directory", e).in_file(parent))?;
        }
        let after = self.new.map(|text| After::new(text.into_bytes(), None));
        Pending { path: self.path, before: self.before, after }.carry_out()
    }
}

/// A line in the `info/exclude` of a repository, by which git leaves out a file.
pub struct Exclude {
    /// The file with such lines.
    pub file: PathBuf,
    /// The line.
    pub pattern: String,
    /// True if the line is added, false if it is removed.
    pub is_added: bool,
}

impl Exclude {
    /// The text with the line, or as it was before the line was added; `None` if nothing is left.
    fn applied(&self, text: Option<&str>) -> Option<String> {
        let (before, pattern) = (text.unwrap_or_default(), &self.pattern);
        let after = if self.is_added {
            match before {
                _ if before.lines().any(|line| line == pattern) => before.to_owned(),
                _ if before.is_empty() || before.ends_with('\n') => format!("{before}{pattern}\n"),
                _ => format!("{before}\n{pattern}"),
            }
        } else if let Some(rest) = before.strip_suffix(&format!("\n{pattern}")) {
            rest.to_owned()
        } else {
            before.split_inclusive('\n').filter(|line| line.trim_end_matches('\n') != pattern).collect()
        };
        Some(after).filter(|after| text.is_some_and(str::is_empty) || !after.is_empty())
    }
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
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn excluding_line_is_added_once_and_removed_exactly() {
        for text in [None, Some(""), Some("# mine\n"), Some("*.log"), Some("/a\n/ab\n\n")] {
            let line = |is_added| Exclude { file: PathBuf::new(), pattern: "/.a/b".to_owned(), is_added };
            let with = line(true).applied(text);
            assert!(with.as_ref().unwrap().lines().any(|line| line == "/.a/b"), "{text:?}");
            assert_eq!(line(true).applied(with.as_deref()), with, "{text:?}");
            let without = line(false).applied(with.as_deref());
            assert_eq!(without.as_deref(), text.filter(|text| !text.is_empty()), "{text:?}");
            assert_eq!(line(false).applied(without.as_deref()), without, "{text:?}");
        }
    }

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
