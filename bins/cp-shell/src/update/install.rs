//! Where the programs are installed: as a release below `lib/cp-tools`, with a directory for each version and a link to the current one,
//! or by a package manager, which is run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cp_common::coprocess::on_path;
use cp_common::output::number;
use cp_common::wire::quoted;
use cp_common::{Code, Error, Result};
use tempfile::TempDir;

use super::tree::run;

/// `lib/cp-tools` below a prefix.
#[derive(Clone)]
pub(super) struct Install {
    root: PathBuf,
}

/// The version in the name of a tree: `0.2.0`, or `0.2.0-2` for another build of this version.
fn version_of(tree: &Path) -> Option<String> {
    let (name, _) = tree.file_name()?.to_str().map(|name| name.split_once('-').unwrap_or((name, "")))?;
    number(name).map(|_| name.to_owned())
}

impl Install {
    /// Returns the installation that contains this program, which is `PREFIX/lib/cp-tools/VERSION/bin/cp-shell`.
    pub(super) fn of(program: &Path) -> Option<Self> {
        let tree = program.parent().filter(|bin| bin.ends_with("bin"))?.parent()?;
        let root = tree.parent().filter(|root| root.ends_with("lib/cp-tools"))?;
        version_of(tree).map(|_| Self { root: root.to_owned() })
    }

    /// The active version.
    pub(super) fn current(&self) -> Result<String> {
        let current = self.path("current");
        current.read_link().ok().and_then(|tree| version_of(&tree)).ok_or_else(|| {
            Error::config("no release is active here").in_file(&current).hint("install one with scripts/install")
        })
    }

    /// The previous tree and its version, if it is kept.
    pub(super) fn previous(&self) -> Option<(PathBuf, String)> {
        let tree = self.path("previous").canonicalize().ok()?;
        version_of(&tree).map(|version| (tree, version))
    }

    /// A tree, or a link to one.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
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
        tempfile::Builder::new().prefix(".update-").tempdir_in(&self.root).map_err(|e| {
            if matches!(e.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) {
                let message = format!("{} cannot be changed: {e}", self.root.display());
                return Error::new(Code::Forbidden, message).hint("run it as the user who installed the programs");
            }
            Error::io("replacing the programs", e).in_file(&self.root)
        })
    }

    /// Verifies a tree with the installer in it, which changes nothing.
    pub(super) fn check(&self, tree: &Path) -> Result<()> {
        self.installer(tree, &["--dry-run"], Code::Integrity)
    }

    /// Activates a tree with the installer in it. If it is interrupted, the old or the new version is active.
    pub(super) fn activate(&self, tree: &Path) -> Result<()> {
        self.installer(tree, &[], Code::Io)
    }

    fn installer(&self, tree: &Path, options: &[&str], code: Code) -> Result<()> {
        let prefix = self.root.ancestors().nth(2).unwrap_or(&self.root);
        let mut command = Command::new("/bin/sh");
        command.arg(tree.join("install")).args(options).arg("--from").arg(tree).arg("--prefix").arg(prefix);
        let code = |status| match status {
            4 => Code::Config,
            6 => Code::Conflict,
            _ => code,
        };
        run(&mut command, Duration::MAX, "the installer of the release", code).map(drop)
    }

    /// True if a path is inside the installation.
    pub(super) fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }
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
        let owner = run(asked.arg("-S").arg(program), QUESTION, "dpkg", |_| Code::Io).ok()?;
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
