//! The results of a search through trees: guarded names, links that give a guarded name to other paths, and
//! repositories.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::{MatchState, NAMES, REPOSITORY};
use crate::nofollow::follow;

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
    pub found: Guarded,
    /// Repositories that are not searched.
    known: &'a [PathBuf],
    /// The links that are followed; `None` means all. A link of the run does not give a guarded name to another path.
    followed: Option<&'a [PathBuf]>,
    /// The writable trees. Commands cannot change other paths.
    pub trees: Vec<PathBuf>,
    /// Targets of links, with the partial names that continue there.
    pub linked: Vec<(PathBuf, MatchState)>,
}

impl<'a> Guards<'a> {
    pub(crate) fn new(known: &'a [PathBuf], followed: Option<&'a [PathBuf]>, trees: Vec<PathBuf>) -> Self {
        Self { found: Guarded::default(), known, followed, trees, linked: Vec::new() }
    }

    /// Records an entry if it is guarded. Otherwise returns the names to search for in it, if it is a directory. `below` is
    /// the state of the search in it, `None` if its name is guarded.
    pub(crate) fn record(
        &mut self,
        below: Option<MatchState>,
        name: &[u8],
        kind: FileType,
        path: &Path,
    ) -> Option<MatchState> {
        let below = below.filter(|_| name != REPOSITORY.as_bytes());
        if name == REPOSITORY.as_bytes() && kind == FileType::Directory {
            if !self.known.iter().any(|known| known == path) {
                self.found.repositories.push(path.to_owned());
            }
        } else if kind == FileType::Symlink {
            self.record_link(below, path);
        } else if below.is_none() || is_device(kind) {
            self.found.paths.push(path.to_owned());
        } else {
            return below.filter(MatchState::can_match);
        }
        None
    }

    fn record_link(&mut self, below: Option<MatchState>, path: &Path) {
        if below.as_ref().is_some_and(|below| !below.has_partial() || below.in_packages) {
            return;
        }
        self.found.links.push(path.to_owned());
        if self.followed.is_some_and(|followed| !followed.iter().any(|known| known == path)) {
            return;
        }
        let target = follow(path).0;
        // A tree as a whole stays writable, even if a link points to it.
        if !self.trees.iter().any(|tree| target != *tree && target.starts_with(tree)) {
            return;
        }
        match below {
            Some(below) => self.linked.push((target, below.linked())),
            None if fs::symlink_metadata(&target).is_ok() && !path.ends_with(REPOSITORY) => {
                self.found.paths.push(target);
            }
            None => {}
        }
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
pub(crate) fn may_matter(below: Option<&MatchState>, name: &[u8], kind: FileType) -> bool {
    below.is_none_or(MatchState::has_partial) || name == REPOSITORY.as_bytes() || is_device(kind)
}

fn is_device(kind: FileType) -> bool {
    matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
}

/// The parts of a repository that name programs or redirect git.
fn parts_of_repository(repository: &Path) -> impl Iterator<Item = PathBuf> {
    let parts = NAMES.repository.iter().map(|part| repository.join(part));
    parts.filter(|path| fs::symlink_metadata(path).is_ok())
}
