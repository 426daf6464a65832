//! Programs that a package manager installed: it is run, and nothing of it is changed behind its back.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cp_common::coprocess::on_path;
use cp_common::wire::quoted;
use cp_common::{Code, Error, Result};

use super::tree::run;

/// How long dpkg may take to say whose a file is.
const QUESTION: Duration = Duration::from_secs(10);

/// Who installed a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// apt, as the package of this name.
    Apt(String),
    /// cargo, whose directory this is.
    Cargo(PathBuf),
}

impl Manager {
    /// The one that installed this program, if any did.
    pub(super) fn of(program: &Path) -> Option<Self> {
        let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
        let homes = [named, own].into_iter().flatten().filter_map(|home| home.canonicalize().ok());
        if let Some(home) = homes.into_iter().find(|home| program.parent() == Some(&home.join("bin"))) {
            return Some(Self::Cargo(home));
        }
        let asked = run(Command::new(on_path("dpkg")?).arg("-S").arg(program), QUESTION).ok()?;
        let owner = asked.printed("dpkg", Code::Io).ok()?;
        Some(Self::Apt(owner.split_once(": ")?.0.to_owned()))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Apt(_) => "apt",
            Self::Cargo(_) => "cargo",
        }
    }

    /// What installs the newest version, or this one.
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
                        return Err(
                            error.hint("bring that source up to date, and run cargo install --path there again")
                        );
                    }
                }
                words.extend(names);
            }
        }
        Ok(words)
    }

    /// Runs it to its end, whatever signal comes: an installation that is cut in two is worse than one that is waited for. Gives the
    /// version that the program then has.
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
        let said = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let said = said.map_err(|e| failed(format!("it ended, but {} cannot be run: {e}", program.display())))?.stdout;
        Ok(String::from_utf8_lossy(&said).trim().trim_start_matches("cp-shell ").to_owned())
    }
}

/// A command as a person types it.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Where cargo has `cp-shell` from, and all packages that it has from there.
fn packages(home: &Path) -> Result<(String, Vec<String>)> {
    let file = home.join(".crates.toml");
    let unknown = || Error::config("cargo does not say where it has cp-shell from").in_file(&file);
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
