//! What a run could leave behind that runs later: what was there before it, so that what it makes can be distinguished.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::git_dir::{self, Repository};
use crate::guard::Guarded;
use crate::policy::Policy;
use crate::sandbox::plan::{Identity, View, any_bytes, path_bytes};

/// A symbolic link and what it says.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct KnownLink {
    pub link: Identity,
    #[serde(with = "path_bytes")]
    pub target: PathBuf,
}

/// The trees that a run may write, and what is guarded in them.
#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Watched {
    #[serde(with = "any_bytes")]
    pub trees: Vec<PathBuf>,
    /// What is there, as it is.
    pub known: Vec<Identity>,
    /// Repositories that it may write.
    #[serde(skip)]
    pub repositories: Vec<Repository>,
    /// Repositories that are hidden or read-only as a whole, and what is dangerous in them, as it is.
    pub closed: Vec<Identity>,
    /// What the policy keeps as it is, and that is not there.
    #[serde(with = "any_bytes")]
    pub absent: Vec<PathBuf>,
    /// Paths that the policy lets commands write by name.
    #[serde(with = "any_bytes")]
    pub listed: Vec<PathBuf>,
    /// Symbolic links with a guarded name, and what they say. A link cannot be made read-only, so it is put back after the run.
    pub links: Vec<KnownLink>,
    /// Files and directories whose names begin with a dot and that are not guarded.
    #[serde(with = "any_bytes")]
    pub hidden: Vec<PathBuf>,
    /// A moment before the run.
    pub since: Option<SystemTime>,
    /// How many entries are looked at when the run has ended.
    pub walk: u64,
}

impl Watched {
    /// The guarded names and repositories in the trees that a run may write.
    pub(super) fn of(policy: &Policy, view: &View, mut found: Guarded) -> Self {
        let (trees, listed) = (&view.write, policy.written_by_name());
        let (links, hidden) = (std::mem::take(&mut found.links), std::mem::take(&mut found.hidden));
        // A tree that turned out to be hidden cannot be written.
        let writable = |path: &PathBuf| trees.iter().any(|root| path.starts_with(root));
        found.paths.retain(writable);
        found.repositories.retain(writable);
        // In what is hidden or read-only as a whole nothing has to be read-only.
        let closed = |path: &Path| view.mask.iter().chain(&view.protect).any(|closed| path.starts_with(closed));
        let (without, within) = found.repositories.into_iter().partition(|path| closed(path));
        found.repositories = within;
        found.repositories.retain(|path| !listed.contains(path));
        let closed: Vec<PathBuf> =
            Guarded { paths: without.clone(), repositories: without, ..Guarded::default() }.into_paths();
        let closed = closed.iter().filter_map(|path| identity(path)).collect();
        let mut absent = policy.pristine_and_absent();
        absent.retain(|path| trees.iter().any(|root| path.starts_with(root)));
        let files: Vec<PathBuf> = found.paths.iter().filter(|path| path.ends_with(".git")).cloned().collect();
        let mut repositories = git_dir::find(&found.repositories, &files, trees);
        repositories.retain(|repository| !view.mask.iter().any(|mask| repository.path.starts_with(mask)));
        let known =
            found.paths.iter().filter(|path| !listed.contains(path)).filter_map(|path| identity(path)).collect();
        let link = |path: PathBuf| Some(KnownLink { link: identity(&path)?, target: fs::read_link(&path).ok()? });
        Self {
            trees: trees.clone(),
            known,
            repositories,
            closed,
            absent,
            links: links.into_iter().filter(|path| !listed.contains(path)).filter_map(link).collect(),
            listed,
            hidden,
            since: Some(SystemTime::now()),
            walk: policy.loaded.settings.paths.walk,
        }
    }

    /// Puts what it holds into a view: what is read-only, and the repositories of linked working trees.
    pub(super) fn add_to(&self, view: &mut View) {
        view.protect.extend(self.known.iter().map(|known| known.path.clone()));
        for repository in &self.repositories {
            view.write.extend(repository.is_outside.then(|| repository.path.clone()));
            view.protect.extend(repository.protected().cloned());
            view.execute.extend(repository.hooks.iter().cloned());
            view.kept.push(repository.path.join(git_dir::KEEP));
        }
    }

    /// Gives up the trees and repositories of what the run may not write after all: what is there is then not taken for the run's.
    pub(crate) fn only_in(&mut self, view: &View) {
        self.trees.retain(|tree| view.write.contains(tree));
        self.repositories.retain(|repository| view.write.iter().any(|root| repository.path.starts_with(root)));
    }
}

/// What a path is now, without following a link.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|meta| Identity::of(path, &meta))
}
