//! The results of a search through trees: guarded names, links that give a guarded name to other paths, and
//! repositories.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::{MatchState, NameMatch, REPOSITORY};
use crate::nofollow::follow;

/// Parts of a repository that name programs or redirect git to other directories.
const OF_REPOSITORY: [&str; 8] = [
    "commondir",
    "config",
    "config.worktree",
    "hooks",
    "info/attributes",
    "modules",
    "objects/info/alternates",
    "worktrees",
];

/// Guarded paths in some trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarded {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Symbolic links with a guarded name, or with the name of a directory that contains guarded names.
    pub links: Vec<PathBuf>,
    /// Directories named `.git`.
    pub repositories: Vec<PathBuf>,
}

impl Guarded {
    /// All paths. A repository is listed by its dangerous parts.
    pub(crate) fn into_paths(self) -> Vec<PathBuf> {
        let inside = self.repositories.iter().flat_map(|repository| parts_of_repository(repository));
        self.paths.iter().cloned().chain(inside).collect()
    }
}

/// Collects guarded paths during a walk.
pub(crate) struct Guards<'a> {
    found: Guarded,
    /// Repositories that are not searched.
    known: &'a [PathBuf],
    /// The links that are followed; `None` means all. A link of the run does not give a guarded name to another path.
    followed: Option<&'a [PathBuf]>,
    /// The writable trees. Commands cannot change other paths.
    pub trees: Vec<PathBuf>,
    /// Targets of links, with the partial names that continue there.
    linked: Vec<(PathBuf, MatchState)>,
}

impl<'a> Guards<'a> {
    pub(crate) fn new(known: &'a [PathBuf], followed: Option<&'a [PathBuf]>, trees: Vec<PathBuf>) -> Self {
        Self { found: Guarded::default(), known, followed, trees, linked: Vec::new() }
    }

    /// Records an entry if it is guarded. Otherwise returns the names to search for in it, if it is a directory.
    pub(crate) fn record(&mut self, step: NameMatch, name: &[u8], kind: FileType, path: &Path) -> Option<MatchState> {
        let is_repository = name == REPOSITORY.as_bytes();
        match step {
            _ if is_repository && kind == FileType::Directory => {
                if !self.known.iter().any(|known| known == path) {
                    self.found.repositories.push(path.to_owned());
                }
                None
            }
            step if kind == FileType::Symlink => {
                self.record_link(step, is_repository, path);
                None
            }
            NameMatch::Guarded => {
                self.found.paths.push(path.to_owned());
                None
            }
            _ if is_repository || is_device(kind) => {
                self.found.paths.push(path.to_owned());
                None
            }
            NameMatch::Inside(within) => within.can_match().then_some(within),
        }
    }

    fn record_link(&mut self, step: NameMatch, is_repository: bool, path: &Path) {
        let within = match step {
            NameMatch::Guarded => None,
            NameMatch::Inside(_) if is_repository => None,
            NameMatch::Inside(within) if within.has_partial() && !within.in_packages => Some(within),
            NameMatch::Inside(_) => return,
        };
        self.found.links.push(path.to_owned());
        if self.followed.is_some_and(|followed| !followed.iter().any(|known| known == path)) {
            return;
        }
        let target = follow(path).0;
        // A tree as a whole stays writable, even if a link points to it.
        if !self.trees.iter().any(|tree| target != *tree && target.starts_with(tree)) {
            return;
        }
        match within {
            Some(within) => self.linked.push((target, within.linked())),
            None if fs::symlink_metadata(&target).is_ok() && !is_repository => self.found.paths.push(target),
            None => {}
        }
    }

    /// The next target of a link.
    pub(crate) fn next_linked(&mut self) -> Option<(PathBuf, MatchState)> {
        self.linked.pop()
    }

    /// Records a directory that cannot be searched.
    pub(crate) fn record_closed(&mut self, directory: &Path) {
        self.found.paths.push(directory.to_owned());
    }

    /// Records a bare repository.
    pub(crate) fn record_bare_repository(&mut self, directory: &Path) {
        self.found.paths.extend(parts_of_repository(directory));
    }

    pub(crate) fn finish(mut self) -> Guarded {
        let Guarded { paths, links, repositories } = &mut self.found;
        for found in [paths, links, repositories] {
            found.sort();
            found.dedup();
        }
        self.found
    }
}

/// True if an entry that is not a directory may be guarded. Other entries need no path, which saves time.
pub(crate) fn may_matter(step: &NameMatch, name: &[u8], kind: FileType) -> bool {
    matches!(step, NameMatch::Guarded)
        || name == REPOSITORY.as_bytes()
        || is_device(kind)
        || matches!(step, NameMatch::Inside(within) if within.has_partial())
}

fn is_device(kind: FileType) -> bool {
    matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
}

/// The parts of a repository that name programs or redirect git.
fn parts_of_repository(repository: &Path) -> impl Iterator<Item = PathBuf> {
    let parts = OF_REPOSITORY.map(|part| repository.join(part));
    parts.into_iter().filter(|path| fs::symlink_metadata(path).is_ok())
}
