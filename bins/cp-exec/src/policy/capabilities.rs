//! `modules/<m>/capabilities.json` of a control plane root, in which a module declares its capabilities. They narrow
//! the policy for requests from inside the module or for its programs, and never widen it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde::Deserialize;

use super::bounds::{Access, Bounds, patterns, present};
use super::patterns::{Anchors, Pattern, escaped};
use crate::glob::name_matches;
use crate::refusal::{denied, denied_by};

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    capabilities: Lists,
}

/// An empty list allows nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Lists {
    read: Vec<String>,
    write: Vec<String>,
    execute: Vec<String>,
    forbidden: Vec<String>,
}

/// A module and its bounds.
pub(crate) struct Module {
    /// Its canonical directory.
    directory: PathBuf,
    file: PathBuf,
    /// The declared bounds, or the error of a manifest that cannot be read.
    bounds: Result<Bounds>,
    /// The declared arguments of executables, for patterns with arguments: `scripts/a.sh --*`.
    arguments: Vec<(Pattern, String)>,
}

/// The modules of a root that declare capabilities. Most roots have none.
pub(super) fn modules(root: &Path, anchors: &Anchors) -> Vec<Module> {
    let anchors = Anchors { base: root.to_owned(), ..anchors.clone() };
    let entries = fs::read_dir(root.join("modules")).into_iter().flatten().flatten();
    let mut modules: Vec<Module> = entries
        .filter_map(|entry| {
            let directory = entry.path().canonicalize().ok()?;
            let file = directory.join("capabilities.json");
            let bounds = match fs::read(&file) {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
                Err(e) => Err(Error::config(format!("cannot be read: {e}")).in_file(&file)),
                Ok(text) => declared(&text, &directory, &anchors).map_err(|e| e.in_file(&file)),
            };
            let (bounds, arguments) = match bounds {
                Ok((bounds, arguments)) => (Ok(bounds), arguments),
                Err(error) => (Err(error), Vec::new()),
            };
            Some(Module { directory, file, bounds, arguments })
        })
        .collect();
    modules.sort_by(|a, b| a.directory.cmp(&b.directory));
    modules
}

/// The bounds that a manifest declares.
fn declared(text: &[u8], directory: &Path, anchors: &Anchors) -> Result<(Bounds, Vec<(Pattern, String)>)> {
    let manifest: Manifest = serde_json::from_slice(text).map_err(|e| Error::config(e.to_string()))?;
    let lists = manifest.capabilities;
    let mut read = patterns(&lists.read, anchors);
    // A module can read its own directory.
    read.push(Pattern::new(&escaped(&directory.to_string_lossy()), anchors));
    let (mut execute, mut arguments) = (Vec::new(), Vec::new());
    for text in &lists.execute {
        let (path, words) = text.split_once(' ').map_or((text.as_str(), None), |(path, words)| (path, Some(words)));
        match words {
            None => execute.push(path.to_owned()),
            Some(words) => arguments.push((Pattern::new(path, anchors), words.trim().to_owned())),
        }
    }
    let bounds = Bounds {
        read,
        write: patterns(&lists.write, anchors),
        execute: patterns(&execute, anchors),
        forbidden: patterns(&lists.forbidden, anchors),
        read_only: false,
    };
    Ok((bounds, arguments))
}

impl Module {
    /// True if the bounds of the module apply to one of these paths.
    pub(super) fn contains_any(&self, paths: &[&Path]) -> bool {
        paths.iter().any(|path| path.starts_with(&self.directory))
    }

    /// The bounds. If the manifest cannot be read, everything is refused.
    fn bounds(&self) -> Result<&Bounds> {
        self.bounds.as_ref().map_err(|error| {
            denied("execute", &self.directory).with("rule", "capabilities").hint(format!(
                "correct {}: {}",
                self.file.display(),
                error.message()
            ))
        })
    }

    /// Refuses access that the module does not declare, or forbids.
    pub(crate) fn check(&self, access: Access, path: &Path) -> Result<()> {
        let bounds = self.bounds()?;
        if let Some(pattern) = bounds.forbidding(path) {
            return Err(denied_by(access.name(), path, "capabilities", pattern.text())
                .hint(format!("it is forbidden in {}", self.file.display())));
        }
        if bounds.lists(access, path) {
            return Ok(());
        }
        Err(denied(access.name(), path).with("rule", "capabilities").hint(format!(
            "capabilities.{} in {} does not list it",
            access.name(),
            self.file.display()
        )))
    }

    /// Refuses to execute a file with arguments that the module does not declare.
    pub(crate) fn check_execute(&self, path: &Path, arguments: &[String]) -> Result<()> {
        let words = arguments.join(" ");
        let declared = |(pattern, with): &(Pattern, String)| pattern.matches(path) && name_matches(with, &words);
        let is_forbidden = self.bounds()?.forbidding(path).is_some();
        if !is_forbidden && self.arguments.iter().any(declared) {
            return Ok(());
        }
        self.check(Access::Execute, path)
    }

    /// Refuses a path that the module forbids.
    pub(crate) fn check_not_forbidden(&self, path: &Path) -> Result<()> {
        match self.bounds()?.forbidding(path) {
            Some(_) => self.check(Access::Read, path),
            None => Ok(()),
        }
    }

    /// The parts of some paths inside the bounds. Only whole trees, because the kernel supports no other patterns.
    pub(crate) fn narrow(&self, access: Access, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut bounds = self.bounds()?.trees(access);
        if access == Access::Execute {
            bounds.extend(self.arguments.iter().flat_map(|(pattern, _)| pattern.present()));
        }
        let mut left = Vec::new();
        for path in paths {
            if bounds.iter().any(|bound| path.starts_with(bound)) {
                left.push(path.clone());
            } else {
                left.extend(bounds.iter().filter(|bound| bound.starts_with(path)).cloned());
            }
        }
        Ok(left)
    }

    /// The forbidden paths, which are hidden.
    pub(crate) fn hidden(&self) -> Result<Vec<PathBuf>> {
        Ok(present(&self.bounds()?.forbidden))
    }
}
