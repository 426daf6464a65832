//! The modules of a control plane root, which declare their capabilities in `modules/<m>/capabilities.json`, and its
//! governed paths, which commands do not write.
//!
//! Capabilities narrow the policy, and never widen it: for requests from inside the module or for its programs, and in
//! a tree that was named as the root for every command. There a path may be accessed if a module lists it for this
//! access; an access that no module lists is restricted by the policy alone.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cp_common::home::resolved;
use cp_common::{Error, Result};
use cp_policy::{PathClass, classify, governed_roots};
use serde::Deserialize;

use super::Policy;
use super::patterns::{Access, Anchors, Bounds, Pattern, escaped};
use crate::refusal::denied;
use crate::sandbox::plan::{Operation, Place, View};
use cp_common::glob::name_matches;

/// A control plane root and its governed roots.
#[derive(Clone)]
pub(crate) struct Governed {
    root: PathBuf,
    roots: Vec<String>,
}

impl Governed {
    /// Reads the declarations of a root.
    pub(super) fn of(root: &Path) -> Result<Self> {
        Ok(Self { root: root.to_owned(), roots: governed_roots(root)? })
    }

    /// Its governed roots and ledgers, including those that do not exist. A prefix that points out of the tree is
    /// ignored.
    pub(super) fn protected(&self) -> Vec<PathBuf> {
        let pristine = self.roots.iter().map(|prefix| self.root.join(prefix));
        let pristine = pristine.filter(|path| path.starts_with(&self.root) && *path != self.root);
        let planes = fs::read_dir(self.root.join("planes")).into_iter().flatten().flatten();
        let ledgers = planes.flat_map(|plane| ["ledger", "sessions"].map(|name| plane.path().join(name)));
        pristine.chain([self.root.join("ledger")]).chain(ledgers).collect()
    }

    /// Refuses to write a pristine path or a ledger.
    pub(crate) fn check_writable(&self, path: &Path) -> Result<()> {
        let (class, _) = classify(&resolved(&self.root), path, &self.roots);
        let (rule, hint) = match class {
            PathClass::Pristine => {
                ("pristine", "governed parts of a tree are changed by its own programs, never by a command")
            }
            PathClass::AppendOnly => {
                ("append_only", "ledgers are written by the programs that keep them, never by a command")
            }
            PathClass::Derived | PathClass::Unknown | PathClass::External => return Ok(()),
        };
        Err(denied("write", path).with("rule", rule).with("class", serde_json::json!(class)).hint(hint))
    }
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    capabilities: Lists,
}

/// A list that is empty or missing allows nothing in the module. Only a list that is there restricts the whole tree.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Lists {
    read: Option<Vec<String>>,
    write: Option<Vec<String>>,
    execute: Option<Vec<String>>,
    forbidden: Vec<String>,
}

/// A module and its bounds.
#[derive(Default)]
pub(crate) struct Module {
    /// Its canonical directory.
    directory: PathBuf,
    file: PathBuf,
    /// The reason why the manifest cannot be read. Then everything in the module is refused.
    fault: Option<String>,
    bounds: Bounds,
    /// Executables with the arguments that are declared for them: `scripts/a.sh --*`.
    scripts: Vec<(Pattern, String)>,
    /// The accesses for which the manifest has a list.
    lists: Vec<Access>,
}

/// The modules of a root that declare capabilities. Most roots have none.
pub(super) fn modules(root: &Path, anchors: &Anchors) -> Vec<Module> {
    let anchors = Anchors { base: root.to_owned(), top: root.to_owned(), ..anchors.clone() };
    let entries = fs::read_dir(root.join("modules")).into_iter().flatten().flatten();
    let mut modules: Vec<Module> = entries
        .filter_map(|entry| {
            let directory = entry.path().canonicalize().ok()?;
            let file = directory.join("capabilities.json");
            let manifest = match fs::read(&file) {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
                Err(e) => Err(e.to_string()),
                Ok(text) => serde_json::from_slice::<Manifest>(&text).map_err(|e| e.to_string()),
            };
            let fault = manifest.as_ref().err().cloned();
            let given = manifest.map(|manifest| manifest.capabilities).unwrap_or_default();
            Some(Module { fault, ..Module::of(directory, file, given, &anchors) })
        })
        .collect();
    modules.sort_by(|a, b| a.directory.cmp(&b.directory));
    modules
}

impl Module {
    fn of(directory: PathBuf, file: PathBuf, given: Lists, anchors: &Anchors) -> Self {
        let Lists { read, write, execute, forbidden } = given;
        let lists = [(Access::Read, &read), (Access::Write, &write), (Access::Execute, &execute)];
        let lists = lists.into_iter().filter(|(_, list)| list.is_some()).map(|(access, _)| access).collect();
        let (scripts, execute): (Vec<_>, Vec<_>) =
            execute.unwrap_or_default().into_iter().partition(|text| text.contains(' '));
        let scripts = scripts.iter().filter_map(|text| text.split_once(' '));
        let scripts = scripts.map(|(path, words)| (Pattern::new(path, anchors), words.trim().to_owned())).collect();
        let (mut read, write) = (read.unwrap_or_default(), write.unwrap_or_default());
        // A module can read its own directory.
        read.push(escaped(&directory.to_string_lossy()));
        let bounds = Bounds::of([&read, &write, &execute], &forbidden, anchors);
        Self { directory, file, fault: None, bounds, scripts, lists }
    }

    /// The patterns of an access. A path that may be written or executed may be read.
    fn patterns(&self, access: Access) -> impl Iterator<Item = &Pattern> {
        let all = [Access::Read, Access::Write, Access::Execute].into_iter();
        let listed = all.filter(move |other| access == Access::Read || *other == access);
        let scripts = self.scripts.iter().filter(move |_| access != Access::Write).map(|(pattern, _)| pattern);
        listed.flat_map(|access| self.bounds.list(access)).chain(scripts)
    }

    /// Refuses access that the module does not declare, or forbids.
    pub(crate) fn check(&self, access: Access, path: &Path) -> Result<()> {
        self.check_not_forbidden(access, path)?;
        if self.bounds.lists(access, path) {
            return Ok(());
        }
        let hint = format!("capabilities.{} in {} does not list it", access.name(), self.file.display());
        Err(undeclared(access, path, hint))
    }

    /// Refuses to execute a file with arguments that the module does not declare.
    pub(crate) fn check_execute(&self, path: &Path, arguments: &[String]) -> Result<()> {
        let words = arguments.join(" ");
        self.check_not_forbidden(Access::Execute, path)?;
        if self.scripts.iter().any(|(pattern, with)| pattern.matches(path) && name_matches(with, &words)) {
            return Ok(());
        }
        self.check(Access::Execute, path)
    }

    /// Refuses a path that the module forbids.
    pub(crate) fn check_not_forbidden(&self, access: Access, path: &Path) -> Result<()> {
        self.bounds.forbidding(path).map_or(Ok(()), |pattern| {
            let file = self.file.display();
            Err(undeclared(access, path, format!("`{}` of capabilities.forbidden in {file} covers it", pattern.text)))
        })
    }

    /// The parts of some paths inside the bounds. Only whole trees, because the kernel supports no other patterns.
    pub(crate) fn narrow(&self, access: Access, paths: &[PathBuf]) -> Vec<PathBuf> {
        let mut bounds = self.bounds.trees(access);
        if access == Access::Execute {
            bounds.extend(self.scripts.iter().filter_map(|(pattern, _)| pattern.tree().map(Path::to_owned)));
        }
        let is_inside = |path: &&PathBuf| bounds.iter().any(|bound| path.starts_with(bound));
        let (inside, around): (Vec<_>, Vec<_>) = paths.iter().partition(is_inside);
        let within = bounds.iter().filter(|bound| around.iter().any(|path| bound.starts_with(path)));
        inside.into_iter().chain(within).cloned().collect()
    }

    /// The patterns of the forbidden paths, which are hidden.
    pub(crate) fn forbidden(&self) -> &[Pattern] {
        &self.bounds.forbidden
    }
}

/// The refusal of an access by modules.
fn undeclared(access: Access, path: &Path, hint: String) -> Error {
    denied(access.name(), path).with("rule", "capabilities").hint(hint)
}

impl Policy {
    /// The modules whose bounds apply to these paths.
    pub(crate) fn modules_at(&self, paths: &[&Path]) -> Result<Vec<&Module>> {
        self.modules_if(|module| paths.iter().any(|path| path.starts_with(&module.directory)))
    }

    /// The modules whose `forbidden` list applies to these paths: all modules of an explicit root.
    pub(crate) fn modules_that_forbid(&self, paths: &[&Path]) -> Result<Vec<&Module>> {
        if self.governed.is_some() { self.modules_if(|_| true) } else { self.modules_at(paths) }
    }

    fn modules_if(&self, applies: impl Fn(&Module) -> bool) -> Result<Vec<&Module>> {
        let applying = self.modules.iter().filter(|module| applies(module));
        let read = applying.map(|module| {
            let Module { file, directory, fault: Some(fault), .. } = module else { return Ok(module) };
            let hint = format!("correct {}: {fault}", file.display());
            Err(undeclared(Access::Execute, directory, hint))
        });
        read.collect()
    }

    /// The named tree, and the patterns of its modules that list paths for an access. `None` if the access is not
    /// restricted.
    fn listing(&self, access: Access) -> Option<(&Path, Vec<&Pattern>)> {
        let governed = self.governed.as_ref()?;
        let mut modules = self.modules.iter().filter(|module| module.lists.contains(&access)).peekable();
        modules.peek()?;
        Some((&governed.root, modules.flat_map(|module| module.patterns(access)).collect()))
    }

    /// Refuses an access to a path of the named tree that no module lists, and to execute a program or script with
    /// arguments that none declares. A directory may be read if a listed path can lie in it.
    pub(crate) fn check_tree(&self, access: Access, path: &Path, arguments: &[String]) -> Result<()> {
        let Some((root, listed)) = self.listing(access) else { return Ok(()) };
        let leads = access == Access::Read && path.is_dir();
        let is_declared = match access {
            Access::Execute => self.modules.iter().any(|module| module.check_execute(path, arguments).is_ok()),
            Access::Read | Access::Write => {
                listed.iter().any(|pattern| pattern.covers(path) || leads && pattern.may_match_below(path))
            }
        };
        if is_declared || !path.starts_with(root) || self.is_tool(path) {
            return Ok(());
        }
        let hint = format!("no module of {} lists it in capabilities.{}", root.display(), access.name());
        Err(undeclared(access, path, hint))
    }

    /// The restrictions of the named tree for the sandbox: what no module lists is hidden, or read-only, and listed paths
    /// in it stay writable.
    pub(crate) fn tree_limits(&self) -> Vec<Place> {
        let mut limits = View::default();
        for (access, around) in [(Access::Read, Operation::Read), (Access::Write, Operation::Writable)] {
            if let Some((root, listed)) = self.listing(access) {
                self.limit(root, &listed, around, &mut limits);
            }
        }
        limits.places
    }

    /// Adds what is done with a path, and with what lies in it, where that differs from what is done around it. The
    /// target of a link is restricted at its own path.
    fn limit(&self, path: &Path, listed: &[&Pattern], around: Operation, limits: &mut View) {
        let Some(meta) = path.symlink_metadata().ok().filter(|meta| !meta.is_symlink()) else { return };
        let is_listed = listed.iter().any(|pattern| pattern.covers(path));
        let leads = meta.is_dir()
            && (listed.iter().any(|pattern| pattern.may_match_below(path))
                || self.tools.iter().any(|tools| tools.starts_with(path) || path.starts_with(tools)));
        let operation = match around {
            Operation::Read if is_listed || leads => Operation::Read,
            Operation::Read => Operation::Hidden,
            // In a directory in which a new entry can match, the other entries are read-only.
            _ if is_listed || leads && listed.iter().any(|pattern| pattern.may_match_new_in(path)) => {
                Operation::Writable
            }
            _ => Operation::ReadOnly,
        };
        if operation != around {
            limits.add(operation, operation != Operation::Writable, [path.to_owned()]);
        }
        if leads && !is_listed {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.for_each(|entry| self.limit(&entry.path(), listed, operation, limits));
        }
    }
}
