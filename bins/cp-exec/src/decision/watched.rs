//! What a run could leave behind that runs later: what was there before it, so that what it makes can be distinguished.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::policy::{Guarded, Policy};
use crate::sandbox::plan::{Identity, View};

/// The trees that a run may write, and what is guarded in them.
#[derive(Default)]
pub(crate) struct Watched {
    pub trees: Vec<PathBuf>,
    /// What is there, as it is.
    pub known: Vec<Identity>,
    /// Repositories in which the run gets a layer of its own, held open: their paths may lead elsewhere when it has ended.
    pub repositories: Vec<(PathBuf, OwnedFd)>,
    /// Repositories that are hidden or read-only as a whole, and what is dangerous in them, as it is.
    pub closed: Vec<Identity>,
    /// What the policy keeps as it is, and that is not there.
    pub absent: Vec<PathBuf>,
    /// Paths that the policy lets commands write by name.
    pub listed: Vec<PathBuf>,
    /// How many entries are looked at when the run has ended.
    pub walk: u64,
}

impl Watched {
    /// What was found in the trees that a run may write.
    pub(super) fn of(policy: &Policy, view: &View, mut found: Guarded) -> Result<Self> {
        let (trees, listed) = (&view.write, policy.written_by_name());
        // A tree that turned out to be hidden cannot be written.
        let writable = |path: &PathBuf| trees.iter().any(|root| path.starts_with(root));
        found.paths.retain(writable);
        found.repositories.retain(writable);
        // What is hidden or read-only as a whole needs no layer, and must not get one.
        let closed = |path: &Path| view.mask.iter().chain(&view.protect).any(|closed| path.starts_with(closed));
        let (without, within) = found.repositories.into_iter().partition(|path| closed(path));
        found.repositories = within;
        found.repositories.retain(|path| !listed.contains(path));
        let closed: Vec<PathBuf> = Guarded { paths: without.clone(), repositories: without }.into_paths();
        let closed = closed.iter().filter_map(|path| identity(path)).collect();
        let mut absent = policy.pristine_and_absent();
        absent.retain(|path| trees.iter().any(|root| path.starts_with(root)));
        let mut repositories = Vec::new();
        for path in &found.repositories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
            repositories.push((path.clone(), opened.map_err(|e| Error::io("the repository", e).in_file(path))?));
        }
        let known =
            found.into_paths().iter().filter(|path| !listed.contains(path)).filter_map(|path| identity(path)).collect();
        let walk = policy.loaded.settings.paths.walk;
        Ok(Self { trees: trees.clone(), known, repositories, closed, absent, listed, walk })
    }

    /// Gives up the trees and layers of what the run may not write after all: what is there is then not taken for the run's.
    pub(crate) fn only_in(&mut self, view: &mut View) {
        self.trees.retain(|tree| view.write.contains(tree));
        self.repositories.retain(|(path, _)| view.write.iter().any(|root| path.starts_with(root)));
        view.repositories = self.repositories.iter().map(|(path, _)| path.clone()).collect();
    }

    /// What is to be read-only: all that is there but what lies in a layer.
    pub(super) fn protected(&self) -> impl Iterator<Item = PathBuf> {
        let in_layer = |path: &Path| self.repositories.iter().any(|(repository, _)| path.starts_with(repository));
        self.known.iter().map(|known| known.path.clone()).filter(move |path| !in_layer(path))
    }
}

/// What a path is now, without following a link.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|meta| Identity::of(path, &meta))
}
