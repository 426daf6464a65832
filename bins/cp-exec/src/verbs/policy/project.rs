//! The needs of a project, derived from the names of its files. No program of the project runs, and none of its text
//! is copied into the policy.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::home::Home;
use cp_common::{Error, Result};

use super::additions::{Addition, Found};
use super::toolchains::{self, CATALOGUE, Group, Program};
use crate::glob::name_matches;
use crate::policy::escaped;
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
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if home.starts_with(&directory) || cp_home.is_below(&directory) {
        let message = format!("{} is not a project: it contains a home directory", directory.display());
        return Err(refuse("base", message).hint("give --for the directory of one project"));
    }
    Ok(directory)
}

/// The needs of the files in a directory. Programs are for every project, and the rest for this one.
pub(super) fn find_kinds(directory: &Path, home: &Path) -> Vec<Found> {
    let listing = directory.read_dir().into_iter().flatten().flatten().take(NAMES);
    // Links are ignored, because their targets do not belong to the project.
    let names: Vec<String> = listing
        .filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_file() || entry.file_name() == ".git" && kind.is_dir())
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let of_group = |group: &Group| {
        let is_there = |pattern: &&String| names.iter().any(|name| name_matches(pattern, name));
        let evidence: Vec<String> = group.files.iter().filter(is_there).cloned().collect();
        (!evidence.is_empty()).then(|| needs(group, evidence, directory, home))
    };
    CATALOGUE.group.iter().filter_map(of_group).collect()
}

/// The programs of this machine for all kinds of projects.
pub(super) fn of_each_kind(home: &Path) -> Vec<Addition> {
    let mut found = Found::default();
    for group in &CATALOGUE.group {
        found.programs(group, home);
    }
    found.adds
}

fn needs(group: &Group, evidence: Vec<String>, directory: &Path, home: &Path) -> Found {
    let mut found = Found { kind: group.name.clone(), evidence, ..Found::default() };
    found.programs(group, home);
    let general = std::mem::take(&mut found.adds);
    if group.name == PYTHON {
        found.environment(group, directory, home);
    }
    if general.is_empty() && found.adds.is_empty() {
        return found;
    }
    let Group { env, read, execute, registries, .. } = group;
    found.registries.clone_from(registries);
    found.adds.extend(env.iter().map(|[name, value, why]| Addition::named("exec.env_set", name, value, why)));
    found.adds.extend(read.iter().map(|[path, why]| Addition::listed("paths.read", path, why)));
    let why = "scripts, tests and what is built run where they lie";
    found.adds.extend(execute.iter().map(|path| Addition::listed("paths.execute", path, why)));
    found.adds = general.into_iter().chain(found.adds.into_iter().map(Addition::of_project)).collect();
    found
}

impl Found {
    /// Adds the programs of a group that this machine has. Programs of another installation than the first required
    /// program are skipped, such as pip of another Python.
    fn programs(&mut self, group: &Group, home: &Path) {
        let installation = |program: &Program| {
            program.pin.as_deref().and_then(|pin| pin.rsplit_once('/')).map(|(bin, _)| bin.to_owned())
        };
        let first = group.needs.first().and_then(|name| toolchains::find(name, home));
        let beside = first.as_ref().and_then(installation);
        for name in group.names() {
            let found = toolchains::find(name, home).filter(|program| {
                group.needs.iter().any(|needed| needed == name)
                    || program.pin.is_none()
                    || installation(program) == beside
            });
            let Some(program) = found else {
                self.missing.extend(group.needs.iter().any(|needed| needed == name).then(|| name.to_owned()));
                continue;
            };
            self.adds.push(Addition::listed("exec.allowed_commands", name, &group.reason));
            self.adds.extend(program.additions(name));
        }
    }

    /// Adds what the virtual environment of the project, or the active one, needs. Its programs run by their paths, and
    /// those of the active one also by their names, because the shell finds them.
    fn environment(&mut self, group: &Group, directory: &Path, home: &Path) {
        let is_environment = |root: &PathBuf| is_directory(&root.join("bin")) && is_file(&root.join("pyvenv.cfg"));
        let own = [".venv", "venv"].map(|name| directory.join(name)).into_iter();
        let own = own.filter(|root| is_directory(root)).find(is_environment);
        let active = std::env::var_os("VIRTUAL_ENV").and_then(|root| PathBuf::from(root).canonicalize().ok());
        let active = active.filter(is_environment);
        let Some(root) = active.clone().or(own) else { return };
        let Some(text) = toolchains::below_home(&root, home) else {
            self.missing.push(format!("{}: the path is not UTF-8", root.display()));
            return;
        };
        let interpreter = root.join("bin/python3").canonicalize().ok();
        let Some(program) = interpreter.as_deref().and_then(|file| python(file, home)) else {
            self.missing.push(format!("{}: its interpreter is not one of this machine", root.display()));
            return;
        };
        self.adds.extend(program.files());
        let bin = root.join("bin");
        let is_active = active.as_ref() == Some(&root);
        for name in group.names().filter(|name| is_active && bin.join(name).canonicalize().is_ok()) {
            let why = "the active virtual environment";
            self.adds.push(Addition::listed("exec.allowed_commands", name, why));
            self.adds.push(Addition::named("exec.pin", name, &format!("{text}/bin/{name}"), why));
        }
        if !root.starts_with(directory) {
            let (why, whole) = ("the active virtual environment", escaped(&text) + "/**");
            self.adds.extend(["paths.read", "paths.execute"].map(|key| Addition::listed(key, &whole, why)));
        }
    }
}

/// The needs of a Python interpreter. The description of the environment is not trusted: its link must lead to an
/// interpreter of this machine.
fn python(file: &Path, home: &Path) -> Option<Program> {
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
