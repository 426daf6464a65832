//! What a project needs of a policy: found by the names of its files. Nothing of it is run, and no text of it gets into the policy.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};

use super::additions::{Addition, Key};
use super::toolchains::{self, Program};
use crate::glob::name_matches;
use crate::refusal::refuse;

/// How many names of a project's directory are looked at.
const NAMES: usize = 10_000;

/// Something that projects are, and what it needs.
struct Kind {
    name: &'static str,
    /// Files by which it is known.
    evidence: &'static [&'static str],
    commands: &'static [&'static str],
    /// Variables, and directories that are made before a run.
    set: &'static [(&'static str, &'static str)],
    execute: &'static [&'static str],
    why: &'static str,
}

const KINDS: [Kind; 8] = [
    Kind {
        name: "python",
        evidence: &[
            "pyproject.toml",
            "setup.py",
            "setup.cfg",
            "requirements.txt",
            "uv.lock",
            "poetry.lock",
            "Pipfile",
            "pytest.ini",
            "tox.ini",
            "*.py",
        ],
        commands: &["python3"],
        set: &[],
        execute: &[],
        why: "the project is written in Python",
    },
    Kind {
        name: "node",
        evidence: &["package.json", "*.js", "*.mjs", "*.cjs"],
        commands: &["node", "npm"],
        set: &[("npm_config_offline", "true")],
        execute: &[],
        why: "the project runs on Node.js",
    },
    Kind {
        name: "pnpm",
        evidence: &["pnpm-lock.yaml", "pnpm-workspace.yaml"],
        commands: &["pnpm"],
        set: &[],
        execute: &[],
        why: "the project's packages come from pnpm",
    },
    Kind {
        name: "cargo",
        evidence: &["Cargo.toml"],
        commands: &["cargo", "rustc"],
        set: &[("CARGO_NET_OFFLINE", "true")],
        execute: &["target/**"],
        why: "the project is a crate or a workspace of Cargo",
    },
    Kind {
        name: "go",
        evidence: &["go.mod", "go.work"],
        commands: &["go"],
        set: &[
            ("GOCACHE", "./.cache/go-build"),
            ("GOTMPDIR", "./.cache"),
            ("GOMODCACHE", "~/go/pkg/mod"),
            ("GOPROXY", "off"),
            ("GOTOOLCHAIN", "local"),
        ],
        execute: &[".cache/**"],
        why: "the project is a module of Go",
    },
    Kind {
        name: "make",
        evidence: &["Makefile", "makefile", "GNUmakefile"],
        commands: &["make"],
        set: &[],
        execute: &[],
        why: "the project has recipes of make",
    },
    Kind {
        name: "just",
        evidence: &["justfile", "Justfile", ".justfile"],
        commands: &["just"],
        set: &[],
        execute: &[],
        why: "the project has recipes of just",
    },
    Kind {
        name: "git",
        evidence: &[".git"],
        commands: &["git"],
        set: &[],
        execute: &[],
        why: "the project is a repository",
    },
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
        let evidence: Vec<String> = kind.evidence.iter().filter(there).map(|&pattern| pattern.to_owned()).collect();
        (!evidence.is_empty()).then(|| needs(kind, evidence, directory, home))
    };
    KINDS.iter().filter_map(of_kind).collect()
}

fn needs(kind: &Kind, evidence: Vec<String>, directory: &Path, home: &Path) -> Found {
    let mut found = Found { kind: kind.name.to_owned(), evidence, adds: Vec::new(), missing: Vec::new() };
    let environment = (kind.name == "python").then(|| environment(directory, home)).flatten();
    if let Some((root, usable)) = environment {
        match usable {
            Some(program) => return of_environment(found, &root, &program, directory, home),
            None => found.missing.push(format!("{}: its interpreter is not one of this machine", root.display())),
        }
    }
    for name in kind.commands {
        match toolchains::find(name, home) {
            Some(program) => found.program(name, &program, kind.why),
            None => found.missing.push((*name).to_owned()),
        }
    }
    if kind.name == "python" {
        for name in OF_ENVIRONMENTS {
            if let Some(program) = toolchains::find(name, home) {
                found.program(name, &program, "installed beside Python");
            }
        }
    }
    if found.adds.is_empty() {
        return found;
    }
    found.adds.extend(kind.set.iter().map(|(name, value)| Addition::new(Key::Set, name, value, because(name))));
    if kind.name == "go" && home.join("go/pkg/mod").is_dir() {
        found.adds.push(Addition::listed(Key::Read, "~/go/pkg/mod/**", "modules that were downloaded"));
    }
    found.adds.extend(kind.execute.iter().map(|path| Addition::listed(Key::Execute, path, "what is built there runs")));
    found.runs_what_it_has(kind.name);
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
    fn program(&mut self, name: &str, program: &Program, why: &str) {
        self.adds.push(Addition::listed(Key::Allowed, name, why));
        self.adds.extend(program.pin.iter().map(|file| Addition::new(Key::Pin, name, file, "where it lies")));
        self.files(program);
    }

    fn files(&mut self, program: &Program) {
        let why = "files of the toolchain";
        self.adds.extend(program.read.iter().map(|path| Addition::listed(Key::Read, path, why)));
        self.adds.extend(program.execute.iter().map(|path| Addition::listed(Key::Execute, path, why)));
        self.adds.extend(program.set.iter().map(|(name, value)| Addition::new(Key::Set, name, value, why)));
    }

    fn runs_what_it_has(&mut self, kind: &str) {
        if kind != "git" {
            self.adds.push(Addition::listed(Key::Execute, ".", "scripts, tests and what is built run where they lie"));
        }
    }
}

/// The virtual environment of a project, or the one that is active; with what its interpreter needs, if that is one of this machine.
fn environment(directory: &Path, home: &Path) -> Option<(PathBuf, Option<Program>)> {
    let is_environment = |root: &PathBuf| is_directory(&root.join("bin")) && is_file(&root.join("pyvenv.cfg"));
    let own = [".venv", "venv"]
        .map(|name| directory.join(name))
        .into_iter()
        .find(|root| is_directory(root) && is_environment(root));
    let active = || std::env::var_os("VIRTUAL_ENV").and_then(|root| PathBuf::from(root).canonicalize().ok());
    let root = own.or_else(|| active().filter(is_environment))?;
    // What the environment says about it is not believed: the link must lead to an interpreter that an installer put there.
    let usable = root.join("bin/python3").canonicalize().ok().and_then(|interpreter| {
        let name = interpreter.file_name()?.to_str()?;
        let is_python =
            name.strip_prefix("python3").is_some_and(|rest| rest.chars().all(|c| c == '.' || c.is_ascii_digit()));
        toolchains::installed_in(interpreter.parent()?, home).filter(|_| is_python)
    });
    Some((root, usable))
}

fn of_environment(mut found: Found, root: &Path, program: &Program, directory: &Path, home: &Path) -> Found {
    let bin = root.join("bin");
    let Some(text) = toolchains::of_home(root, home) else {
        found.missing.push(format!("{}: a path with characters that are not plain", root.display()));
        return found;
    };
    let interpreter = bin.join("python3").canonicalize().ok();
    let is_interpreter = |name: &&str| bin.join(name).canonicalize().ok() == interpreter;
    let interpreters = ["python3", "python"].into_iter().filter(is_interpreter);
    let why = "of the virtual environment";
    for name in interpreters.chain(OF_ENVIRONMENTS.into_iter().filter(|name| is_file(&bin.join(name)))) {
        found.adds.push(Addition::listed(Key::Allowed, name, why));
        found.adds.push(Addition::new(Key::Pin, name, &format!("{text}/bin/{name}"), why));
    }
    found.files(program);
    if let Ok(below) = root.strip_prefix(directory) {
        let below = below.to_string_lossy();
        found.adds.push(Addition::listed(Key::Pristine, &below, "what is installed stays as it is"));
    } else {
        let whole = format!("{text}/**");
        found
            .adds
            .extend([Key::Read, Key::Execute].map(|key| Addition::listed(key, &whole, "the virtual environment")));
    }
    found.runs_what_it_has("python");
    found
}

/// Whether it is a directory itself, and no link to one.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}
