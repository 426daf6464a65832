//! The repositories that a run may write. Each `.git` is the real directory, so git's own locks work between the run
//! and its owner. Every part that names programs or redirects git is read-only, including paths in the working tree
//! that the configuration names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use super::{GIT, Node, Placeholder, Snapshot, placeholder};
use crate::nofollow::{self, Link};
use crate::serde_paths::{any_bytes, path_bytes};

/// The maximum depth at which directories of submodules and linked working trees are searched.
const DEEPEST: usize = 8;
/// The maximum depth of included configuration files, as in git.
const INCLUDES: usize = 10;

/// A repository that a run may write. It is stored, to compare it after a run that was killed together with this program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Repository {
    /// The directory named `.git`, or the target of the `.git` file of a linked working tree.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    pub node: Node,
    /// True if the repository lies outside of the writable paths of the policy and belongs to a working tree in them.
    pub is_outside: bool,
    /// Existing parts that are read-only.
    #[serde(skip)]
    pub read_only: Vec<PathBuf>,
    /// Directories of hooks, and the targets of hooks that are links.
    #[serde(skip)]
    pub hooks: Vec<PathBuf>,
    /// Parts that git would read and that do not exist. Placeholders for them are created before the run and removed
    /// after it.
    #[serde(skip)]
    pub(super) absent: Vec<(PathBuf, Placeholder)>,
    /// Links to read-only parts. A run can replace such links.
    #[serde(skip)]
    pub links: Vec<Link>,
    /// The directory of the repository, and those of submodules and linked working trees that the run may write.
    #[serde(with = "any_bytes")]
    pub(super) directories: Vec<PathBuf>,
    /// Paths that the settings name, which do not exist.
    #[serde(with = "any_bytes")]
    pub(super) named: Vec<PathBuf>,
    /// What was there before the run of what is judged after it, and lock files.
    #[serde(with = "any_bytes")]
    pub(super) there: Vec<PathBuf>,
    /// References that git does not make in ordinary work, as lines of packed references.
    pub(super) references: Vec<String>,
    /// The history from before the run, if it is kept.
    pub snapshot: Option<Snapshot>,
}

impl Repository {
    /// The paths of all read-only parts, including placeholders that are still to be created.
    pub(crate) fn protected(&self) -> impl Iterator<Item = &PathBuf> {
        self.read_only.iter().chain(self.absent.iter().map(|(path, _)| path))
    }

    /// True if this repository is at a path, even if it was moved there.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        super::node_of(path).is_some_and(|now| now == self.node)
    }
}

/// Finds the read-only parts of repositories: of directories named `.git`, and of the targets of `.git` files.
pub(crate) fn find(directories: &[PathBuf], files: &[PathBuf], writable: &[PathBuf]) -> Vec<Repository> {
    let is_writable = |path: &Path| writable.iter().any(|root| path.starts_with(root));
    let mut found: Vec<Repository> = Vec::new();
    for directory in directories {
        found.extend(Finder::of(writable, directory.parent()).find(directory));
    }
    for file in files {
        let Some(directory) = common_directory(file) else { continue };
        if is_writable(&directory) {
            continue;
        }
        // A repository with several working trees is found with the first of them.
        if !found.iter().any(|known| known.path == directory) {
            let outside = Finder::of(writable, file.parent()).find(&directory);
            found.extend(outside.map(|repository| Repository { is_outside: true, ..repository }));
        }
    }
    found
}

/// The target of the `.git` file of a linked working tree or a submodule. The target must refer back to the working
/// tree, because a run could write such a file, but not its target.
pub(super) fn common_directory(file: &Path) -> Option<PathBuf> {
    let top = file.parent()?;
    let named = super::read_small(file)?;
    let directory = top.join(named.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    if let Some(back) = super::read_small(&directory.join("gitdir")) {
        let common = super::read_small(&directory.join("commondir"))?;
        let common = directory.join(common.trim()).canonicalize().ok()?;
        let is_its = directory.join(back.trim()) == file && directory.parent()? == common.join("worktrees");
        return is_its.then_some(common);
    }
    let settings = Settings::read(&super::read_small(&directory.join("config"))?);
    let back = settings.values("core", "worktree").last()?.to_owned();
    (directory.join(back).canonicalize().ok()? == top).then_some(directory)
}

struct Finder<'a> {
    writable: &'a [PathBuf],
    found: Repository,
    /// The working trees.
    tops: Vec<PathBuf>,
}

impl<'a> Finder<'a> {
    fn of(writable: &'a [PathBuf], top: Option<&Path>) -> Self {
        Self { writable, found: Repository::default(), tops: top.map(Path::to_owned).into_iter().collect() }
    }

    fn find(mut self, path: &Path) -> Option<Repository> {
        path.clone_into(&mut self.found.path);
        self.found.node = super::node_of(path)?;
        for (worktree, top) in linked_worktrees(path) {
            match top.filter(|top| self.is_writable(top) || self.tops.contains(top)) {
                Some(top) => {
                    self.add_parts(&worktree, &GIT.parts_of_worktree);
                    self.found.directories.push(worktree);
                    self.tops.push(top);
                }
                None => self.found.read_only.push(worktree),
            }
        }
        let tops = self.tops.clone();
        self.add_directory(path, &tops);
        for module in modules_below(&path.join("modules"), DEEPEST) {
            let config = super::read_small(&module.join("config")).unwrap_or_default();
            let top = Settings::read(&config).values("core", "worktree").last().map(|top| module.join(top));
            let top = top.and_then(|top| top.canonicalize().ok());
            self.add_directory(&module, &Vec::from_iter(top));
        }
        let Repository { read_only, hooks, .. } = &mut self.found;
        for paths in [read_only, hooks] {
            paths.sort();
            paths.dedup();
        }
        Some(self.found)
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|root| path.starts_with(root)) || path.starts_with(&self.found.path)
    }

    fn add_directory(&mut self, directory: &Path, tops: &[PathBuf]) {
        self.add_parts(directory, &GIT.parts);
        self.found.directories.push(directory.to_owned());
        self.add_hooks(&directory.join("hooks"));
        for config in ["config", "config.worktree"] {
            self.add_named(&directory.join(config), tops, INCLUDES);
        }
    }

    fn add_parts(&mut self, directory: &Path, parts: &BTreeMap<String, Placeholder>) {
        for (name, placeholder) in parts {
            let path = directory.join(name);
            if *placeholder != Placeholder::Nothing && placeholder::is_free(&path) {
                self.found.absent.push((path, *placeholder));
            } else if path.symlink_metadata().is_ok() {
                self.add(&path);
            }
        }
    }

    /// Records a path that git reads.
    fn add(&mut self, path: &Path) {
        let (real, links) = nofollow::follow(path);
        let links: Vec<_> = links.into_iter().filter(|link| self.is_writable(&link.at)).collect();
        self.found.links.extend(links);
        if !self.is_writable(&real) {
            return;
        }
        if real.symlink_metadata().is_ok() {
            self.found.read_only.push(real);
        } else if !real.starts_with(&self.found.path) {
            self.found.named.push(real);
        }
    }

    /// Records a directory of hooks, and the targets of hooks that are links.
    fn add_hooks(&mut self, directory: &Path) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        let hooks = entries.flatten().filter(|entry| entry.path().extension() != Some(OsStr::new("sample")));
        for hook in hooks.map(|hook| hook.path()) {
            let (real, _) = nofollow::follow(&hook);
            self.add(&hook);
            let with_hook = if real == hook { directory.canonicalize().ok() } else { Some(real) };
            self.found.hooks.extend(with_hook.filter(|path| path.exists()));
        }
    }

    /// Records the paths that a configuration file names.
    fn add_named(&mut self, config: &Path, tops: &[PathBuf], depth: usize) {
        let Some(text) = super::read_small(config).filter(|_| depth > 0) else { return };
        let settings = Settings::read(&text);
        for included in settings.values("include", "path").chain(settings.values("includeif", "path")) {
            let included = config.parent().unwrap_or(config).join(with_home(included));
            self.add(&included);
            self.add_named(&included, tops, depth - 1);
        }
        for top in tops {
            let fsmonitor = settings.values("core", "fsmonitor").filter(|value| value.contains('/'));
            for named in settings.values("core", "attributesfile").chain(fsmonitor) {
                self.add(&top.join(with_home(named)));
            }
            for directory in settings.values("core", "hookspath").map(|value| top.join(with_home(value))) {
                // A directory that contains the working tree cannot be read-only as a whole.
                if top.starts_with(nofollow::follow(&directory).0) {
                    for name in &GIT.hooks {
                        self.add(&directory.join(name));
                    }
                } else {
                    self.add(&directory);
                    self.add_hooks(&directory);
                }
            }
        }
    }
}

/// A path of a configuration file, with a leading `~/` expanded.
fn with_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(below), Some(home)) => Path::new(&home).join(below),
        _ => PathBuf::from(path),
    }
}

/// The directories of linked working trees in a repository, each with its working tree if that exists.
fn linked_worktrees(repository: &Path) -> Vec<(PathBuf, Option<PathBuf>)> {
    let entries = fs::read_dir(repository.join("worktrees")).into_iter().flatten().flatten();
    let top = |directory: &Path| {
        let file = directory.join(super::read_small(&directory.join("gitdir"))?.trim());
        (common_directory(&file)? == repository).then(|| file.parent().map(Path::to_owned))?
    };
    entries.map(|entry| entry.path()).map(|directory| (directory.clone(), top(&directory))).collect()
}

/// The existing directories of submodules and linked working trees.
pub(super) fn inner_directories(repository: &Path) -> Vec<PathBuf> {
    let worktrees = linked_worktrees(repository).into_iter().map(|(directory, _)| directory);
    worktrees.chain(modules_below(&repository.join("modules"), DEEPEST)).collect()
}

/// The repositories of submodules. Their names may have several components.
fn modules_below(directory: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if depth == 0 || !is_directory {
            continue;
        }
        if path.join("HEAD").symlink_metadata().is_ok() {
            found.extend(modules_below(&path.join("modules"), depth - 1));
            found.push(path);
        } else {
            found.extend(modules_below(&path, depth - 1));
        }
    }
    found
}
