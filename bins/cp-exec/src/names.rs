//! Guarded names: files that other programs execute, or read commands from, without being asked to by name. The names
//! are listed in `names.toml`. Also the paths with such names that a search through trees found.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::FileType;
use serde::Deserialize;

use crate::nofollow::follow;

#[derive(Deserialize)]
struct Names {
    packages: Vec<String>,
    everywhere: Vec<PathBuf>,
    outside_packages: Vec<PathBuf>,
    /// The components of all names. Most entries have none of them as their name.
    #[serde(skip)]
    components: HashSet<OsString>,
}

/// The name of the directory of a repository.
pub(crate) const REPOSITORY: &str = ".git";

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut names: Names = crate::data::parsed(include_str!("names.toml"));
    names.components = names.all().flatten().map(OsStr::to_owned).collect();
    names
});

impl Names {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.everywhere.iter().chain(&self.outside_packages)
    }

    /// True if the last component of a path is one of a name.
    fn may_have(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|last| self.components.contains(last))
    }

    /// The names of directories in which names lie.
    fn beginnings(&self) -> impl Iterator<Item = &Path> {
        self.all().flat_map(|name| name.ancestors().skip(1)).filter(|beginning| beginning.file_name().is_some())
    }
}

fn is_in_packages(path: &Path) -> bool {
    path.iter().rev().skip(1).any(|part| NAMES.packages.iter().any(|known| part == known.as_str()))
}

/// True if a path, which begins below a tree, ends with a guarded name.
fn has_guarded_name(path: &Path) -> bool {
    let has = |names: &[PathBuf]| names.iter().any(|name| path.ends_with(name));
    let may_have = || NAMES.may_have(path);
    path.ends_with(REPOSITORY)
        || may_have() && (has(&NAMES.everywhere) || has(&NAMES.outside_packages) && !is_in_packages(path))
}

/// True if a path has a guarded name, or lies in a guarded directory or a repository.
pub(crate) fn is_guarded(path: &Path) -> bool {
    path.ancestors().any(has_guarded_name)
}

/// True if a link with a guarded name, or the beginning of one, makes a path guarded. The link lies in a directory
/// around the path, below `root`, and points to the path or to a directory around it.
pub(crate) fn is_guarded_by_link(root: &Path, path: &Path) -> bool {
    let leads_to_path = |link: PathBuf| {
        let target = link.is_symlink().then(|| follow(&link).0);
        target.is_some_and(|target| target != root && path.starts_with(target))
    };
    let mut around = path.ancestors().skip(1).take_while(|directory| directory.starts_with(root));
    around
        .any(|directory| NAMES.all().flat_map(|name| name.ancestors()).any(|name| leads_to_path(directory.join(name))))
}

/// Guarded paths in some trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarded {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Symbolic links with a guarded name, or with the name of a directory that contains guarded names.
    pub links: Vec<PathBuf>,
    /// Directories named `.git`.
    pub repositories: Vec<PathBuf>,
    /// Directories that git takes for repositories because of their entries.
    pub bare: Vec<PathBuf>,
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
}

impl<'a> Guards<'a> {
    pub(crate) fn new(known: &'a [PathBuf], followed: Option<&'a [PathBuf]>, trees: Vec<PathBuf>) -> Self {
        Self { found: Guarded::default(), known, followed, trees }
    }

    /// Records an entry if it is guarded. `below` is its path below the tree that is searched. Returns true if names can
    /// be found in it.
    pub(crate) fn record(&mut self, below: &Path, kind: FileType, path: &Path) -> bool {
        if path.ends_with(REPOSITORY) && kind == FileType::Directory {
            if !self.known.iter().any(|known| known == path) {
                self.found.repositories.push(path.to_owned());
            }
        } else if kind == FileType::Symlink {
            self.record_link(below, path);
        } else if is_device(kind) || has_guarded_name(below) {
            self.found.paths.push(path.to_owned());
        } else {
            return true;
        }
        false
    }

    fn record_link(&mut self, below: &Path, path: &Path) {
        let begins = || NAMES.beginnings().any(|beginning| below.ends_with(beginning));
        let is_beginning = NAMES.may_have(below) && begins() && !is_in_packages(below);
        if !is_beginning && !has_guarded_name(below) {
            return;
        }
        self.found.links.push(path.to_owned());
        let is_followed = self.followed.is_none_or(|followed| followed.iter().any(|known| known == path));
        let target = follow(path).0;
        // A tree as a whole stays writable, even if a link points to it.
        let is_inside = self.trees.iter().any(|tree| target != *tree && target.starts_with(tree));
        if is_followed && is_inside && !path.ends_with(REPOSITORY) && fs::symlink_metadata(&target).is_ok() {
            self.found.paths.push(target);
        }
    }

    pub(crate) fn finish(mut self) -> Guarded {
        let Guarded { paths, links, repositories, bare } = &mut self.found;
        for found in [paths, links, repositories, bare] {
            found.sort();
            found.dedup();
        }
        self.found
    }
}

/// True if an entry that is not a directory may be guarded. Other entries need no path, which saves time.
pub(crate) fn may_matter(name: &OsStr, kind: FileType) -> bool {
    NAMES.components.contains(name) || name == REPOSITORY || is_device(kind)
}

fn is_device(kind: FileType) -> bool {
    matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_names_match_at_any_depth_but_not_similar_names() {
        for name in NAMES.all() {
            for path in [name.clone(), Path::new("a/b").join(name), name.join("below")] {
                assert!(is_guarded(&path), "{path:?}");
            }
            let neighbour = name.with_file_name("unguarded-name.txt");
            assert!(!is_guarded(&neighbour), "{neighbour:?}");
            assert_eq!(
                is_guarded(&Path::new("node_modules/p").join(name)),
                NAMES.everywhere.contains(name),
                "{name:?}"
            );
        }
    }

    #[test]
    fn manual_page_lists_every_name() {
        let page: Vec<&str> = include_str!("../../../man/cp-policy.5").split_whitespace().collect();
        for name in NAMES.all() {
            assert!(page.iter().any(|word| name == Path::new(word)), "{name:?}");
        }
    }
}
