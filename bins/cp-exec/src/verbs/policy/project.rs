//! The needs of a project, derived from the names of its files. No program of the project runs, and none of its text
//! is copied into the policy.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::home::Home;
use cp_common::{Error, Result};
use serde_json::{Value, json};

use super::toolchains::{self, CATALOGUE, Group, Program, is_of_system};
use crate::glob::name_matches;
use crate::refusal::refuse;

/// The most names in a project's directory that are read.
const NAMES: usize = 10_000;

/// The group of an interpreter that a virtual environment may replace.
const PYTHON: &str = "python";

/// The directory of a project, without links.
pub(super) fn directory(given: &Path, home: &Path, cp_home: &Home) -> Result<PathBuf> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such directory").in_file(given),
        _ => Error::io("the project", e).in_file(given),
    };
    let directory = given.canonicalize().map_err(failed)?;
    if !directory.is_dir() {
        return Err(Error::validation("not a directory").in_file(given));
    }
    check(&directory, home, cp_home).map(|()| directory)
}

/// Refuses a directory without links that is not a project.
pub(crate) fn check(directory: &Path, home: &Path, cp_home: &Home) -> Result<()> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if home.starts_with(directory) || cp_home.is_below(directory) {
        let message = format!("{} is not a project: it contains a home directory", directory.display());
        return Err(refuse("base", message).hint("change to the directory of a project, or give it"));
    }
    Ok(())
}

/// What projects need.
#[derive(Default)]
pub(super) struct Needs {
    /// The kinds of work: python, node, pnpm, cargo, go, java, ruby, c, make, just or git, each with the files that
    /// indicate it, the programs that are not installed or cannot be trusted, and the names for `cp-exec allow network`.
    pub(super) lines: Vec<String>,
    /// The additions to the policy.
    pub(super) adds: Vec<Value>,
}

/// The needs of the files in a directory.
pub(super) fn find_kinds(directory: &Path, home: &Path) -> Needs {
    let listing = directory.read_dir().into_iter().flatten().flatten().take(NAMES);
    // Links are ignored, because their targets do not belong to the project.
    let names: Vec<String> = listing
        .filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_file() || entry.file_name() == ".git" && kind.is_dir())
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let mut needs = Needs::default();
    for group in &CATALOGUE.group {
        let is_there = |pattern: &&str| names.iter().any(|name| name_matches(pattern, name));
        let evidence: Vec<&str> = group.files.iter().map(String::as_str).filter(is_there).collect();
        if !evidence.is_empty() {
            needs.lines.push(format!("{} ({})", group.name, evidence.join(", ")));
            needs.kind(group, directory, home);
        }
    }
    needs
}

/// The programs of this machine for all kinds of projects.
pub(super) fn of_each_kind(home: &Path) -> Vec<Value> {
    let mut needs = Needs::default();
    CATALOGUE.group.iter().for_each(|group| needs.programs(group, home));
    needs.adds
}

impl Needs {
    fn kind(&mut self, group: &Group, directory: &Path, home: &Path) {
        let before = self.adds.len();
        // Of two pins of one name the first is added.
        if group.name == PYTHON {
            self.environment(group, directory, home);
        }
        self.programs(group, home);
        if self.adds.len() > before {
            self.adds.push(group.adds.clone());
            let registries = group.registries.join(" ");
            let line = format!("  to download packages: cp-exec allow network {registries}");
            self.lines.extend((!registries.is_empty()).then_some(line));
        }
    }

    /// Adds the programs of a group that this machine has. Programs of another installation than the first required
    /// program are skipped, such as pip of another Python.
    fn programs(&mut self, group: &Group, home: &Path) {
        let first = group.needs.first().and_then(|name| toolchains::find(name, home)).map(|first| first.directory);
        for name in group.names() {
            let is_needed = group.needs.iter().any(|needed| needed == name);
            let is_beside = |program: &Program| {
                is_needed || is_of_system(&program.directory) || first.as_ref() == Some(&program.directory)
            };
            match toolchains::find(name, home).filter(is_beside) {
                Some(program) => {
                    self.adds.push(json!({ "exec": { "allowed_commands": [name] } }));
                    self.adds.extend(program.additions);
                }
                None => self.lines.extend(is_needed.then(|| format!("  missing: {name}"))),
            }
        }
    }

    /// Adds what the active virtual environment needs, or that of the project. Its programs run by their paths, and
    /// those of the active one also by their names, because the shell finds them.
    fn environment(&mut self, group: &Group, directory: &Path, home: &Path) {
        let is_environment = |root: &PathBuf| is_directory(&root.join("bin")) && is_file(&root.join("pyvenv.cfg"));
        let active = std::env::var_os("VIRTUAL_ENV").and_then(|root| PathBuf::from(root).canonicalize().ok());
        let own = [".venv", "venv"].map(|name| directory.join(name)).into_iter().filter(|root| is_directory(root));
        let Some(root) = active.iter().cloned().chain(own).find(is_environment) else { return };
        let bin = root.join("bin");
        let interpreter = bin.join("python3").canonicalize().ok();
        let files = interpreter.as_deref().and_then(|file| python(file, home));
        let own = if root.starts_with(directory) { Some(Vec::new()) } else { toolchains::whole(&root, home) };
        let (Some(files), Some(own)) = (files, own) else {
            self.lines.push(format!("  missing: {}: its interpreter is not one of this machine", root.display()));
            return;
        };
        let names = group.names().filter(|name| active.as_ref() == Some(&root) && bin.join(name).exists());
        let pinned = names.filter_map(|name| Some((name, toolchains::below_home(&bin.join(name), home)?)));
        for (name, file) in pinned {
            self.adds.push(json!({ "exec": { "allowed_commands": [name], "pin": { name: file } } }));
        }
        self.adds.extend(files.into_iter().chain(own));
    }
}

/// The needs of a Python interpreter. The description of the environment is not trusted: its link must lead to an
/// interpreter of this machine.
fn python(file: &Path, home: &Path) -> Option<Vec<Value>> {
    let version = file.file_name()?.to_str()?.strip_prefix("python3")?;
    let is_version = version.chars().all(|c| c == '.' || c.is_ascii_digit());
    toolchains::installed_in(file.parent()?, home).filter(|_| is_version)
}

/// True if a path is a directory and not a link.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}
