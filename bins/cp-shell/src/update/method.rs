//! How the programs were installed: as a release below `lib/cp-tools`, with a directory for each version and a link to
//! the current one, or by a package manager, which is run.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use cp_common::coprocess::{Child, ChildOptions, Expression, Stderr, cmd, on_path};
use cp_common::program::describe::number;
use cp_common::wire::quoted;
use cp_common::{Code, Error, Result};

/// How the programs were installed.
#[derive(Clone)]
pub(super) enum Method {
    /// As a release below this `lib/cp-tools`.
    Release(PathBuf),
    /// By apt, as this package.
    Apt(String),
    /// By cargo with this home.
    Cargo(PathBuf),
    /// Built and not installed.
    Development,
}

impl Method {
    pub(super) fn of(program: &Path) -> Self {
        // A release is PREFIX/lib/cp-tools/VERSION/bin/cp-shell.
        let tree = program.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent);
        if let Some(tree) = tree.filter(|tree| version_of(tree).is_some())
            && let Some(base) = tree.parent().filter(|base| base.ends_with("lib/cp-tools"))
        {
            return Self::Release(base.to_owned());
        }
        let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
        let homes = [std::env::var_os("CARGO_HOME").map(PathBuf::from), own].into_iter().flatten();
        for home in homes.filter_map(|home| home.canonicalize().ok()) {
            if program.parent() == Some(&home.join("bin")) {
                return Self::Cargo(home);
            }
        }
        let owner = run("dpkg", &cmd("dpkg", ["-S".as_ref(), program.as_os_str()]), |_| Code::Io).ok();
        let package = owner.and_then(|owner| owner.split_once(": ").map(|(package, _)| package.to_owned()));
        package.map_or(Self::Development, Self::Apt)
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Release(_) => "release",
            Self::Apt(_) => "apt",
            Self::Cargo(_) => "cargo",
            Self::Development => "development",
        }
    }

    /// The command with which the package manager installs the newest version, or this one.
    pub(super) fn command(&self, version: Option<&str>) -> Result<Vec<String>> {
        let words = match self {
            Self::Apt(package) => {
                let package = version.map_or_else(|| package.clone(), |version| format!("{package}={version}"));
                let older = version.map(|_| " --allow-downgrades").unwrap_or_default();
                format!("apt-get install --only-upgrade --yes{older} {package}")
            }
            Self::Cargo(home) => cargo(home, version)?,
            _ => String::new(),
        };
        Ok(words.split_whitespace().map(str::to_owned).collect())
    }
}

/// The command that builds all programs again from the source of `cp-shell`.
fn cargo(home: &Path, version: Option<&str>) -> Result<String> {
    let file = home.join(".crates.toml");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    // "cp-shell 0.1.0 (git+https://…#revision)" = ["cp-shell"]
    let rows = table.get("v1").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
    let rows: Vec<(&str, &str)> = rows.filter_map(|id| Some((id.split_once(' ')?.0, id.split_once('(')?.1))).collect();
    let own = rows.iter().find(|(name, _)| *name == "cp-shell").map_or("an unknown source", |(_, source)| *source);
    let source = own.trim_end_matches(')');
    let option = |name: &str| version.map(|version| format!(" {name}{version}")).unwrap_or_default();
    let source = match source.split_once('+') {
        Some(("git", url)) => {
            format!("--git {}{}", url.split(['?', '#']).next().unwrap_or(url), option("--tag v"))
        }
        Some(("registry" | "sparse", _)) => option("--version "),
        _ => {
            let error = Error::config(format!("cargo built these programs from {source}")).in_file(&file);
            return Err(error.hint("update that source, and run cargo install --path there again"));
        }
    };
    let names: Vec<&str> = rows.iter().filter(|(_, source)| *source == own).map(|(name, _)| *name).collect();
    Ok(format!("cargo install --locked {source} {}", names.join(" ")))
}

/// Runs a package manager without reacting to signals, because an interrupted installation could be incomplete. Returns
/// the new version of the program.
pub(super) fn manage(words: &[String], program: &Path) -> Result<String> {
    let line = line(words);
    let failed = |why: String| {
        let error = Error::new(Code::CommandFailed, format!("{line}: {why}")).with("command", line.as_str());
        error.hint(format!("run it by hand, perhaps as root: {line}"))
    };
    let manager = on_path(&words[0]).ok_or_else(|| failed("it was not found".to_owned()))?;
    let manager = cmd(manager, &words[1..]).env("DEBIAN_FRONTEND", "noninteractive").stdin_null().stdout_null();
    let status = manager.unchecked().run().map_err(|e| failed(e.to_string()))?.status;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    let reported = cmd(program, ["--version"]).stdin_null().stderr_null().unchecked().read();
    let reported = reported.map_err(|e| failed(format!("it ended, but {} cannot be run: {e}", program.display())))?;
    Ok(reported.trim_start_matches("cp-shell ").to_owned())
}

/// A command line with quoted words.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The version in the name of a tree, or of the tree behind a link: `0.2.0`, or `0.2.0-2` for another build of this
/// version.
pub(super) fn version_of(tree: &Path) -> Option<String> {
    let tree = tree.canonicalize().ok()?;
    let name = tree.file_name()?.to_str()?;
    let version = name.split_once('-').map_or(name, |(version, _)| version);
    number(version).map(|_| version.to_owned())
}

/// Locks `lib/cp-tools` against other updates, until the file is dropped.
pub(super) fn lock(base: &Path) -> Result<File> {
    let directory = File::open(base).map_err(|e| Error::io("opening", e).in_file(base))?;
    directory.try_lock().map_err(|e| match e {
        std::fs::TryLockError::WouldBlock => {
            Error::new(Code::Conflict, "another update is running").hint("retry when it has finished")
        }
        std::fs::TryLockError::Error(e) => Error::io("locking", e).in_file(base),
    })?;
    Ok(directory)
}

/// Verifies and activates a tree of this version with the installer in it. If it is interrupted, the old or the new
/// version is active.
pub(super) fn install(base: &Path, tree: &Path, version: &str) -> Result<()> {
    let prefix = base.ancestors().nth(2).unwrap_or(base);
    let program = tree.join("install");
    let from = [program.as_os_str(), "--from".as_ref(), tree.as_os_str()];
    let options = ["--expect".as_ref(), OsStr::new(version), "--prefix".as_ref(), prefix.as_os_str()];
    let code = |status| match status {
        // The tree differs from its list, or has no installer.
        2 | 3 | 127 => Code::Integrity,
        4 => Code::Config,
        6 => Code::Conflict,
        _ => Code::Io,
    };
    run("the installer", &cmd("/bin/sh", from.into_iter().chain(options)), code).map(drop)
}

/// Runs a command until it exits or a signal arrives, and returns its output. `code` maps the exit status of a command
/// that fails.
pub(super) fn run(name: &str, command: &Expression, code: impl Fn(i32) -> Code) -> Result<String> {
    let mut child = Child::start(name, command, ChildOptions { stderr: Stderr::Kept, ..ChildOptions::DEFAULT })?;
    let (status, printed) = child.output(None, &mut |_| Ok(()))?.unwrap_or_default();
    if status.success() {
        return Ok(String::from_utf8_lossy(&printed).into_owned());
    }
    let message = format!("{name} failed: {}", child.error_text());
    Err(Error::new(code(status.code().unwrap_or_default()), message))
}
