//! Where the programs are installed: as a release below `lib/cp-tools`, with a directory for each version and a link to the current one,
//! or by a package manager, which is run.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cp_common::coprocess::on_path;
use cp_common::output::number;
use cp_common::wire::quoted;
use cp_common::{Code, Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat, renameat_with};
use tempfile::TempDir;

use super::tree::run;

/// The directories whose files have links below the prefix.
const LINKED: [&str; 7] = [
    "bin",
    "share/man/man1",
    "share/man/man5",
    "share/man/man7",
    "share/bash-completion/completions",
    "share/zsh/site-functions",
    "share/fish/vendor_completions.d",
];
/// The links to the active and the previous release.
const CURRENT: &str = "current";
const PREVIOUS: &str = "previous";
/// The prefix of temporary directories.
const STAGED: &str = ".update-";

/// `lib/cp-tools` below a prefix.
#[derive(Clone)]
pub(super) struct Install {
    root: PathBuf,
}

impl Install {
    /// Returns the installation that contains this program, which is `PREFIX/lib/cp-tools/VERSION/bin/cp-shell`.
    pub(super) fn of(program: &Path) -> Option<Self> {
        let tree = program.parent().filter(|bin| bin.ends_with("bin"))?.parent()?;
        let root = tree.parent().filter(|root| root.ends_with("lib/cp-tools"))?;
        number(tree.file_name()?.to_str()?)?;
        Some(Self { root: root.to_owned() })
    }

    /// The active version.
    pub(super) fn current(&self) -> Result<String> {
        self.linked(CURRENT).ok_or_else(|| {
            let error = Error::config("no release is active here").in_file(&self.root.join(CURRENT));
            error.hint("install one with scripts/install")
        })
    }

    /// The previous version, if it is kept.
    pub(super) fn previous(&self) -> Option<String> {
        self.linked(PREVIOUS).filter(|version| self.tree(version).is_dir())
    }

    fn linked(&self, name: &str) -> Option<String> {
        let target = self.root.join(name).read_link().ok()?;
        target.to_str().filter(|version| number(version).is_some()).map(str::to_owned)
    }

    /// The directory of a version.
    pub(super) fn tree(&self, version: &str) -> PathBuf {
        self.root.join(version)
    }

    /// Locks the installation against other updates, until the file is dropped.
    pub(super) fn lock(&self) -> Result<File> {
        let directory = File::open(&self.root).map_err(|e| Error::io("opening", e).in_file(&self.root))?;
        match directory.try_lock() {
            Ok(()) => Ok(directory),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(Error::new(Code::Conflict, "another update is running").hint("retry when it has finished"))
            }
            Err(std::fs::TryLockError::Error(e)) => Err(Error::io("locking", e).in_file(&self.root)),
        }
    }

    /// A temporary directory beside the versions, removed when it is dropped.
    pub(super) fn stage(&self) -> Result<TempDir> {
        tempfile::Builder::new().prefix(STAGED).tempdir_in(&self.root).map_err(|e| self.refused(e))
    }

    /// Activates a tree by one rename, so that an interruption leaves the old or the new version active.
    pub(super) fn replace(&self, tree: &Path, version: &str, stage: &TempDir) -> Result<()> {
        let place = self.tree(version);
        let done = || -> std::io::Result<()> {
            rustix::fs::syncfs(File::open(tree)?)?;
            if place.symlink_metadata().is_ok() {
                // An old tree is removed with the temporary directory.
                renameat_with(CWD, tree, CWD, &place, RenameFlags::EXCHANGE)?;
            } else {
                renameat(CWD, tree, CWD, &place)?;
            }
            Ok(())
        };
        done().map_err(|e| self.refused(e))?;
        self.put_in_force(version, stage)
    }

    /// Activates an installed version.
    pub(super) fn put_in_force(&self, version: &str, stage: &TempDir) -> Result<()> {
        let link = |name: &str, version: &str| -> std::io::Result<()> {
            symlink(version, stage.path().join(name))?;
            std::fs::rename(stage.path().join(name), self.root.join(name))
        };
        let current = self.current()?;
        link(PREVIOUS, &current)
            .and_then(|()| link(CURRENT, version))
            .and_then(|()| File::open(&self.root)?.sync_all())
            .map_err(|e| self.refused(e))
    }

    /// Creates missing links to the files of the active release below the prefix. Removes our dangling links, versions that are not active,
    /// previous or running, and temporary directories of killed updates.
    pub(super) fn tidy(&self, running: &Path) -> Result<()> {
        let prefix = self.root.ancestors().nth(2).unwrap_or(&self.root);
        for folder in LINKED {
            let here = prefix.join(folder);
            let ours = format!("{}lib/cp-tools/{CURRENT}/{folder}/", "../".repeat(folder.split('/').count()));
            for name in names(&self.root.join(CURRENT).join(folder)) {
                let link = here.join(&name);
                if link.symlink_metadata().is_err() {
                    std::fs::create_dir_all(&here).map_err(|e| self.refused(e))?;
                    symlink(format!("{ours}{name}"), link).map_err(|e| self.refused(e))?;
                }
            }
            for link in names(&here).into_iter().map(|name| here.join(name)) {
                let is_ours = link.read_link().is_ok_and(|target| target.to_string_lossy().starts_with(&ours));
                if is_ours && !link.exists() {
                    std::fs::remove_file(link).map_err(|e| self.refused(e))?;
                }
            }
        }
        let kept = [self.linked(CURRENT), self.linked(PREVIOUS)];
        for name in names(&self.root) {
            let tree = self.tree(&name);
            let is_over = number(&name).is_some() && !kept.contains(&Some(name.clone())) && !running.starts_with(&tree);
            if is_over || name.starts_with(STAGED) {
                let _ = std::fs::remove_dir_all(tree);
            }
        }
        Ok(())
    }

    /// True if a path is inside the installation.
    pub(super) fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    fn refused(&self, e: impl Into<std::io::Error>) -> Error {
        let e = e.into();
        if matches!(e.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) {
            let message = format!("{} cannot be changed: {e}", self.root.display());
            return Error::new(Code::Forbidden, message).hint("run it as the user who installed the programs");
        }
        Error::io("replacing the programs", e).in_file(&self.root)
    }
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The time limit for a query to dpkg.
const QUESTION: Duration = Duration::from_secs(10);

/// A package manager that installed the programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// apt, with the name of the package.
    Apt(String),
    /// cargo, with its home directory.
    Cargo(PathBuf),
}

impl Manager {
    /// Returns the package manager that installed this program, if any.
    pub(super) fn of(program: &Path) -> Option<Self> {
        let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
        let homes = [named, own].into_iter().flatten().filter_map(|home| home.canonicalize().ok());
        if let Some(home) = homes.into_iter().find(|home| program.parent() == Some(&home.join("bin"))) {
            return Some(Self::Cargo(home));
        }
        let mut asked = Command::new(on_path("dpkg")?);
        let owner = run(asked.arg("-S").arg(program), QUESTION, "dpkg", Code::Io).ok()?;
        Some(Self::Apt(owner.split_once(": ")?.0.to_owned()))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Apt(_) => "apt",
            Self::Cargo(_) => "cargo",
        }
    }

    /// The command that installs the newest version, or this one.
    pub(super) fn command(&self, version: Option<&str>) -> Result<Vec<String>> {
        let mut words: Vec<String>;
        match self {
            Self::Apt(package) => {
                let package = version.map_or_else(|| package.clone(), |version| format!("{package}={version}"));
                words = ["apt-get", "install", "--only-upgrade", "--yes"].map(str::to_owned).to_vec();
                words.extend(version.map(|_| "--allow-downgrades".to_owned()));
                words.push(package);
            }
            Self::Cargo(home) => {
                let (source, names) = packages(home)?;
                words = ["cargo", "install", "--locked"].map(str::to_owned).to_vec();
                match source.split_once('+') {
                    Some(("git", url)) => {
                        words.extend(["--git".to_owned(), url.split(['?', '#']).next().unwrap_or(url).to_owned()]);
                        words.extend(
                            version.into_iter().flat_map(|version| ["--tag".to_owned(), format!("v{version}")]),
                        );
                    }
                    Some(("registry" | "sparse", _)) => {
                        words.extend(
                            version.into_iter().flat_map(|version| ["--version".to_owned(), version.to_owned()]),
                        );
                    }
                    _ => {
                        let error = Error::config(format!("cargo built these programs from {source}"));
                        return Err(error.hint("update that source, and run cargo install --path there again"));
                    }
                }
                words.extend(names);
            }
        }
        Ok(words)
    }

    /// Runs the package manager without reacting to signals, because an interrupted installation could be incomplete. Returns the new
    /// version of the program.
    pub(super) fn run(words: &[String], program: &Path) -> Result<String> {
        let line = line(words);
        let failed = |why: String| {
            let error = Error::new(Code::CommandFailed, format!("{line}: {why}")).with("command", line.as_str());
            error.hint(format!("run it by hand, perhaps as root: {line}"))
        };
        let manager = on_path(&words[0]).ok_or_else(|| failed("it was not found".to_owned()))?;
        let mut command = Command::new(manager);
        command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().map_err(|e| failed(e.to_string()))?;
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        let reported = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let reported =
            reported.map_err(|e| failed(format!("it ended, but {} cannot be run: {e}", program.display())))?.stdout;
        Ok(String::from_utf8_lossy(&reported).trim().trim_start_matches("cp-shell ").to_owned())
    }
}

/// A command line with quoted words.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The source from which cargo installed `cp-shell`, and all packages from this source.
fn packages(home: &Path) -> Result<(String, Vec<String>)> {
    let file = home.join(".crates.toml");
    let unknown = || Error::config("cargo has no record of the source of cp-shell").in_file(&file);
    let table: toml::Table =
        std::fs::read_to_string(&file).ok().and_then(|text| text.parse().ok()).ok_or_else(unknown)?;
    // "cp-shell 0.1.0 (git+https://…#revision)" = ["cp-shell"]
    let rows = table.get("v1").and_then(toml::Value::as_table).into_iter().flatten();
    let rows: Vec<(&str, &str)> = rows.filter_map(|(id, _)| id.split_once(' ')).collect();
    let source = |id: &str| id.split_once('(').map(|(_, source)| source.trim_end_matches(')').to_owned());
    let own = rows.iter().find(|(name, _)| *name == "cp-shell").and_then(|(_, id)| source(id)).ok_or_else(unknown)?;
    let names = rows.iter().filter(|(_, id)| source(id).as_ref() == Some(&own)).map(|(name, _)| (*name).to_owned());
    Ok((own.clone(), names.collect()))
}
