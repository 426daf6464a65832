//! What a project needs of a policy: found by the names of its files. Nothing of it is run, and no text of it gets into the policy.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};

use super::additions::Addition;
use super::toolchains::{self, Program};
use crate::glob::name_matches;
use crate::refusal::refuse;

/// How many names of a project's directory are looked at.
const NAMES: usize = 10_000;

/// Something that projects are: its name, files by which it is known, commands, variables, and why.
type Kind = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
    &'static str,
);

#[rustfmt::skip]
const KINDS: [Kind; 8] = [
    ("python", &["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "uv.lock", "poetry.lock", "Pipfile", "pytest.ini", "tox.ini", "*.py"],
        &["python3"], &[], "the project is written in Python"),
    ("node", &["package.json", "*.js", "*.mjs", "*.cjs"], &["node", "npm"], &[("npm_config_offline", "true")], "the project runs on Node.js"),
    ("pnpm", &["pnpm-lock.yaml", "pnpm-workspace.yaml"], &["pnpm"], &[], "the project's packages come from pnpm"),
    ("cargo", &["Cargo.toml"], &["cargo", "rustc"], &[("CARGO_NET_OFFLINE", "true")], "the project is a crate or a workspace of Cargo"),
    ("go", &["go.mod", "go.work"], &["go"],
        &[("GOCACHE", "./.cache/go-build"), ("GOTMPDIR", "./.cache"), ("GOMODCACHE", "~/go/pkg/mod"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")],
        "the project is a module of Go"),
    ("make", &["Makefile", "makefile", "GNUmakefile"], &["make"], &[], "the project has recipes of make"),
    ("just", &["justfile", "Justfile", ".justfile"], &["just"], &[], "the project has recipes of just"),
    ("git", &[".git"], &["git"], &[], "the project is a repository"),
];

/// Programs that a virtual environment may have, beside its interpreter.
const OF_ENVIRONMENTS: [&str; 3] = ["pytest", "ruff", "mypy"];

/// What was found in a project.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Found {
    /// What it is: python, node, pnpm, cargo, go, make, just or git.
    pub(super) kind: String,
    /// The files that say so.
    pub(super) evidence: Vec<String>,
    /// What it adds to the policy.
    pub(super) adds: Vec<Addition>,
    /// What it would need and was not found, or cannot be trusted.
    pub(super) missing: Vec<String>,
}

/// The directory of a project, without links.
pub(super) fn directory(given: &Path, home: &Path, cp_home: &Path) -> Result<PathBuf> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such directory").in_file(given),
        _ => Error::io("the project", e).in_file(given),
    };
    let directory = given.canonicalize().map_err(failed)?;
    if !directory.is_dir() {
        return Err(Error::validation("not a directory").in_file(given));
    }
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if home.starts_with(&directory) || cp_home.starts_with(&directory) {
        let message = format!("{} is not a project: it contains a home directory", directory.display());
        return Err(refuse("base", message).hint("give --for the directory of one project"));
    }
    Ok(directory)
}

/// What a directory holds, and what that needs.
pub(super) fn look(directory: &Path, home: &Path) -> Vec<Found> {
    let listing = directory.read_dir().into_iter().flatten().flatten().take(NAMES);
    // What a link leads to is not of the project.
    let names: Vec<String> = listing
        .filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_file() || entry.file_name() == ".git" && kind.is_dir())
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let of_kind = |kind: &Kind| {
        let there = |pattern: &&&str| names.iter().any(|name| name_matches(pattern, name));
        let evidence: Vec<String> = kind.1.iter().filter(there).map(|&pattern| pattern.to_owned()).collect();
        (!evidence.is_empty()).then(|| needs(kind, evidence, directory, home))
    };
    KINDS.iter().filter_map(of_kind).collect()
}

fn needs((kind, _, commands, set, why): &Kind, evidence: Vec<String>, directory: &Path, home: &Path) -> Found {
    let mut found = Found { kind: (*kind).to_owned(), evidence, adds: Vec::new(), missing: Vec::new() };
    let is_python = *kind == "python";
    if !(is_python && found.environment(directory, home)) {
        for name in *commands {
            if !found.program(name, home, why) {
                found.missing.push((*name).to_owned());
            }
        }
        for name in OF_ENVIRONMENTS.into_iter().filter(|_| is_python) {
            found.program(name, home, "installed beside Python");
        }
    }
    if found.adds.is_empty() {
        return found;
    }
    found.adds.extend(set.iter().map(|(name, value)| Addition::named("exec.env_set", name, value, because(name))));
    if *kind == "go" {
        found.adds.push(Addition::listed("paths.execute", ".cache/**", "what is built there runs"));
        found.adds.push(Addition::listed("paths.read", "~/go/pkg/mod/**", "modules that were downloaded"));
    }
    if *kind != "git" {
        found.adds.push(Addition::listed("paths.execute", ".", "scripts, tests and what is built run where they lie"));
    }
    found
}

/// What a variable is for.
fn because(variable: &str) -> &'static str {
    match variable {
        "GOCACHE" => "what was built is kept in the project",
        "GOTMPDIR" => "tests are built where they may run",
        "GOMODCACHE" => "modules that were downloaded are read, not written",
        _ => "commands have no network",
    }
}

impl Found {
    /// Adds a program of this machine; false if there is none of this name.
    fn program(&mut self, name: &str, home: &Path, why: &str) -> bool {
        let Some(program) = toolchains::find(name, home) else { return false };
        self.adds.push(Addition::listed("exec.allowed_commands", name, why));
        self.adds.extend(program.pin.iter().map(|file| Addition::named("exec.pin", name, file, "where it lies")));
        self.files(&program);
        true
    }

    fn files(&mut self, program: &Program) {
        let why = "files of the toolchain";
        self.adds.extend(program.read.iter().map(|path| Addition::listed("paths.read", path, why)));
        self.adds.extend(program.execute.iter().map(|path| Addition::listed("paths.execute", path, why)));
        self.adds.extend(program.set.iter().map(|(name, value)| Addition::named("exec.env_set", name, value, why)));
    }

    /// Adds the virtual environment of a project, or the one that is active; false if there is none that can be used.
    fn environment(&mut self, directory: &Path, home: &Path) -> bool {
        let is_environment = |root: &PathBuf| is_directory(&root.join("bin")) && is_file(&root.join("pyvenv.cfg"));
        let own = [".venv", "venv"].map(|name| directory.join(name)).into_iter();
        let own = own.filter(|root| is_directory(root)).find(is_environment);
        let active = || std::env::var_os("VIRTUAL_ENV").and_then(|root| PathBuf::from(root).canonicalize().ok());
        let Some(root) = own.or_else(|| active().filter(is_environment)) else { return false };
        let interpreter = root.join("bin/python3").canonicalize().ok();
        let (Some(text), Some(program)) =
            (toolchains::of_home(&root, home), interpreter.as_deref().and_then(|file| python(file, home)))
        else {
            self.missing.push(format!("{}: its interpreter is not one of this machine", root.display()));
            return false;
        };
        let bin = root.join("bin");
        let is_interpreter = |name: &&str| bin.join(name).canonicalize().ok() == interpreter;
        let interpreters = ["python3", "python"].into_iter().filter(is_interpreter);
        let why = "of the virtual environment";
        for name in interpreters.chain(OF_ENVIRONMENTS.into_iter().filter(|name| is_file(&bin.join(name)))) {
            self.adds.push(Addition::listed("exec.allowed_commands", name, why));
            self.adds.push(Addition::named("exec.pin", name, &format!("{text}/bin/{name}"), why));
        }
        self.files(&program);
        if let Ok(below) = root.strip_prefix(directory) {
            let below = below.to_string_lossy();
            self.adds.push(Addition::listed("paths.pristine", &below, "what is installed stays as it is"));
        } else {
            let whole = format!("{text}/**");
            let keys = ["paths.read", "paths.execute"];
            self.adds.extend(keys.map(|key| Addition::listed(key, &whole, "the virtual environment")));
        }
        true
    }
}

/// What an interpreter of Python needs. What an environment says about it is not believed: its link must lead to one of this machine.
fn python(file: &Path, home: &Path) -> Option<Program> {
    let version = file.file_name()?.to_str()?.strip_prefix("python3")?;
    let is_version = version.chars().all(|c| c == '.' || c.is_ascii_digit());
    toolchains::installed_in(file.parent()?, home).filter(|_| is_version)
}

/// Whether it is a directory itself, and no link to one.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}
