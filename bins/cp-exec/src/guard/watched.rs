//! The state of guarded paths before a run, to find files of the run that other programs would execute later.
//!
//! Also the repositories that earlier runs made. One is a run's own as long as it is the same directory and nothing in
//! it has changed since a run ended. The list is in the home, which no run can write.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cp_common::home::Home;
use serde::{Deserialize, Serialize};

use crate::files::append_bounded;
use crate::git_dir::{self, Repository, Snapshot};
use crate::names::Guarded;
use crate::nofollow::Link;
use crate::policy::Policy;
use crate::sandbox::plan::{Identity, Operation, Place, View};
use crate::serde_paths::any_bytes;

/// The trees that a run may write, and the guarded paths in them.
#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Watched {
    #[serde(with = "any_bytes")]
    pub trees: Vec<PathBuf>,
    /// The guarded paths that exist before the run.
    pub known: Vec<Identity>,
    /// Repositories that the run may write.
    pub repositories: Vec<Repository>,
    /// Repositories that earlier runs made. They are as writable as those that this run makes.
    #[serde(with = "any_bytes")]
    pub own: Vec<PathBuf>,
    /// Pristine paths of the policy that do not exist.
    #[serde(with = "any_bytes")]
    pub absent: Vec<PathBuf>,
    /// Paths that the policy explicitly makes writable.
    #[serde(with = "any_bytes")]
    pub listed: Vec<PathBuf>,
    /// Symbolic links with a guarded name, or to what git reads. A link cannot be made read-only, so it is restored
    /// after the run.
    pub links: Vec<Link>,
    /// The start time of the run.
    pub since: Option<SystemTime>,
    /// The most entries that are read after the run.
    pub walk: u64,
}

impl Watched {
    /// The guarded names and repositories in the trees that a run may write.
    pub(crate) fn of(policy: &Policy, view: &View, mut found: Guarded) -> Self {
        let (trees, listed) = (view.of(Operation::Write).cloned().collect::<Vec<_>>(), policy.bounds.written());
        found.links.retain(|path| !listed.contains(path));
        // A hidden tree is not writable.
        let writable = |path: &PathBuf| trees.iter().any(|root| path.starts_with(root));
        found.paths.retain(writable);
        found.repositories.retain(writable);
        found.paths.extend(found.bare.iter().flat_map(|bare| git_dir::parts_of_bare(bare)));
        // A repository that is hidden or read-only as a whole needs no read-only parts.
        let closed: Vec<PathBuf> = found.repositories.extract_if(.., |path| is_closed(view, path)).collect();
        let mut own = made_by_runs(&policy.cp_home);
        // The repository of the whole project is its owner's, whoever made it.
        own.retain(|path| !policy.base.starts_with(top_of(path)) && writable(path));
        found.repositories.retain(|path| !own.contains(path) && !listed.contains(path));
        found.paths.retain(|path| !own.iter().any(|own| path.starts_with(own)));
        let absent = policy.pristine_and_absent().into_iter().filter(writable).collect();
        let files: Vec<PathBuf> = found.paths.iter().filter(|path| path.ends_with(".git")).cloned().collect();
        let mut repositories = git_dir::find(&found.repositories, &files, &trees);
        repositories.retain(|repository| !view.is_within(Operation::Hidden, &repository.path));
        found.paths.retain(|path| !listed.contains(path));
        let known = found.paths.iter().chain(&closed).filter_map(|path| identity(path)).collect();
        let link = |at: PathBuf| fs::read_link(&at).ok().map(|to| Link { at, to });
        let of_repositories = repositories.iter_mut().flat_map(|repository| std::mem::take(&mut repository.links));
        let links = found.links.into_iter().filter_map(link).chain(of_repositories).collect();
        Self {
            trees,
            known,
            repositories,
            own,
            absent,
            links,
            listed,
            since: Some(SystemTime::now()),
            walk: policy.loaded.settings.paths.walk,
        }
    }

    /// Adds the read-only paths and the repositories of linked working trees to a view.
    pub(crate) fn add_to(&self, view: &mut View) {
        view.add(Operation::ReadOnly, true, self.known.iter().map(|known| known.path.clone()));
        for repository in &self.repositories {
            view.add(Operation::Write, true, repository.is_outside.then(|| repository.path.clone()));
            view.add(Operation::ReadOnly, true, repository.protected().cloned());
            view.add(Operation::Execute, true, repository.hooks.iter().cloned());
            view.add(Operation::Empty, false, [repository.path.join(git_dir::KEEP)]);
        }
    }

    /// What was kept of the repositories.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        self.repositories.iter().filter_map(|repository| repository.snapshot.clone()).collect()
    }

    /// Removes trees and repositories that the view does not make writable, so that their content is not attributed to
    /// the run.
    pub(crate) fn only_in(&mut self, view: &View) {
        self.trees.retain(|tree| view.of(Operation::Write).any(|root| root == tree));
        self.repositories.retain(|repository| view.is_within(Operation::Write, &repository.path));
    }
}

/// The directory that a repository is about: the working tree, or the repository itself if it has none.
pub(crate) fn top_of(repository: &Path) -> &Path {
    if repository.ends_with(".git") { repository.parent().unwrap_or(repository) } else { repository }
}

/// True if a path lies in a hidden directory, or in a read-only one and there in no directory that stays writable.
fn is_closed(view: &View, path: &Path) -> bool {
    let counts = |place: &&Place| match place.operation {
        Operation::ReadOnly => place.is_pinned,
        operation => operation >= Operation::Writable,
    };
    let around = view.places.iter().filter(counts).filter(|place| path.starts_with(&place.path));
    let depth = |place: &&Place| (place.operation > Operation::ReadOnly, place.path.as_os_str().len(), place.operation);
    around.max_by_key(depth).is_some_and(|place| place.operation > Operation::Writable)
}

/// The current identity of a path, without following a link.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|meta| Identity::of(path, &meta))
}

/// Parts of a repository of which one changes when somebody works in it. The first is the repository.
const PARTS: [&str; 9] =
    ["", "HEAD", "config", "hooks", "info", "logs/HEAD", "objects/info", "packed-refs", "refs/heads"];
/// The size at which the list begins anew. A repository that is then forgotten is its owner's.
const FULL: u64 = 1 << 20;

#[derive(Deserialize, PartialEq, Eq, Serialize)]
struct Made {
    repository: Identity,
    /// The newest change time of its parts.
    changed: (i64, i64),
}

impl Made {
    fn now(path: &Path) -> Option<Self> {
        let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
        let parts = PARTS.iter().filter_map(|part| fs::symlink_metadata(path.join(part)).ok());
        let changed = parts.map(|meta| (meta.ctime(), meta.ctime_nsec())).max()?;
        Some(Self { repository: Identity::of(path, &meta), changed })
    }
}

fn list(home: &Home) -> PathBuf {
    home.state("repositories-made")
}

/// The repositories that runs made and that nobody else has changed.
pub(crate) fn made_by_runs(home: &Home) -> Vec<PathBuf> {
    let text = fs::read_to_string(list(home)).unwrap_or_default();
    let known = text.lines().filter_map(|line| serde_json::from_str::<Made>(line).ok());
    let is_same = |known: &Made| Made::now(&known.repository.path).as_ref() == Some(known);
    known.filter(is_same).map(|known| known.repository.path).collect()
}

/// Adds the repositories that a run has left. Errors are ignored, because an unknown repository is its owner's.
pub(crate) fn remember(home: &Home, left: &[String]) {
    let known = if left.is_empty() { Vec::new() } else { made_by_runs(home) };
    let new = left.iter().map(Path::new).filter(|path| !known.iter().any(|known| known == path));
    let lines: Vec<String> = new.filter_map(|path| serde_json::to_string(&Made::now(path)?).ok()).collect();
    if !lines.is_empty() {
        let _ = append_bounded(&list(home), FULL, &(lines.join("\n") + "\n"));
    }
}
