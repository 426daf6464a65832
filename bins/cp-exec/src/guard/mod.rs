//! Guards against files that other programs execute later: their state before a run, with the repositories of earlier
//! runs ([`watched`]), the comparison after it ([`finish`]), the quarantine ([`quarantine`]), and the cleanup after
//! killed runs ([`settle`]). Also the `/tmp` directory of a session.
//!
//! After a run, new files with guarded names, and new parts of repositories that git would execute later, are moved
//! into quarantine before the result is reported. A new repository stays if git executes nothing in it.

mod quarantine;
pub(crate) mod session_tmp;
pub(crate) mod settle;
mod watched;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use self::quarantine::Quarantine;
use self::watched::identity;
pub(crate) use self::watched::{Watched, remember, top_of};
use crate::git_dir::{self, Violation};
use crate::names::Guarded;
use crate::nofollow::{self, Link};
use crate::sandbox::report::Quarantined;
use cp_common::home::Home;

/// The findings of the guard after a run.
pub(crate) struct Findings {
    pub quarantined: Vec<Quarantined>,
    /// The repositories that this run or an earlier one made and that stay.
    pub own_repositories: Vec<String>,
}

/// Quarantines files of a run that other programs would execute, together with the findings in repositories.
/// `private`: the run had its own mounts, so that existing guarded files could not be changed.
pub(crate) fn finish(watched: &Watched, in_repositories: Vec<Violation>, home: &Home, private: bool) -> Findings {
    let mut after = Comparison { watched, private, quarantine: Quarantine::of(home) };
    for Violation { path, reason, put_back } in in_repositories {
        after.quarantine.take(&path, Some(reason));
        if let Some(Err(e)) = put_back.map(|text| nofollow::put_back(&path, text.as_bytes(), 0o644)) {
            after.quarantine.record(&path, Err(e), None);
        }
    }
    for path in watched.absent.iter().filter(|path| identity(path).is_some()) {
        after.quarantine.take(path, Some("is pristine in the policy and did not exist before the run".to_owned()));
    }
    watched.links.iter().for_each(|link| after.restore(link));
    let found = after.search();
    let own_repositories = after.quarantine_new(found);
    Findings { quarantined: after.quarantine.found, own_repositories }
}

/// Compares the file system after a run with the state before it.
struct Comparison<'a> {
    watched: &'a Watched,
    /// True if the run had its own mounts, so that existing guarded files could not be changed.
    private: bool,
    quarantine: Quarantine<'a>,
}

impl Comparison<'_> {
    /// Restores a link with a guarded name that the run removed or replaced.
    fn restore(&mut self, Link { at, to }: &Link) {
        let (now, parent) = (at.symlink_metadata().ok(), nofollow::open_parent(at).ok());
        // If the directory no longer exists, no program reads the name.
        let Some((parent, name)) = parent.filter(|_| fs::read_link(at).ok().as_ref() != Some(to)) else { return };
        let moved = now.map(|_| self.quarantine.move_in(at)).transpose();
        let restored = rustix::fs::symlinkat(to, &parent, name);
        let moved = moved.and_then(|to| restored.map(|()| to).map_err(io::Error::from));
        self.quarantine.record(at, moved, Some("was a link of the owner and was restored".to_owned()));
    }

    /// Searches the trees. A directory of the run with too many entries is quarantined as a whole. A directory that
    /// still cannot be searched becomes a finding.
    fn search(&mut self) -> Guarded {
        let links: Vec<PathBuf> = self.watched.links.iter().map(|link| link.at.clone()).collect();
        // A repository that replaced a moved one is searched for.
        let there = self.watched.repositories.iter().filter(|repository| repository.is_at(&repository.path));
        let there: Vec<PathBuf> = there.map(|repository| repository.path.clone()).collect();
        loop {
            let (found, error) = Guarded::in_trees(&self.watched.trees, &there, &links, self.watched.walk);
            let Some(error) = error else { return found };
            let place = PathBuf::from(error.details()["path"].as_str().unwrap_or_default());
            let made = self.made_around(&place).filter(|_| error.details().contains_key("setting"));
            let reason = error.message().to_owned();
            let is_moved = match &made {
                Some(directory) => self.quarantine.take(directory, Some(reason)),
                None => self.quarantine.record(&place, Err(io::Error::other(reason)), None),
            };
            if !is_moved {
                return found;
            }
        }
    }

    /// The outermost directory around a path that the run created.
    fn made_around(&self, path: &Path) -> Option<PathBuf> {
        let is_inside = |path: &&Path| self.watched.trees.iter().any(|tree| path.starts_with(tree) && *path != tree);
        let is_made = |path: &&Path| {
            let created = path.symlink_metadata().and_then(|meta| meta.created()).ok();
            created.zip(self.watched.since).is_some_and(|(created, since)| created >= since)
        };
        path.ancestors().filter(is_inside).filter(is_made).last().map(Path::to_owned)
    }

    /// Quarantines guarded files that the run created. Returns the new repositories that stay.
    fn quarantine_new(&mut self, found: Guarded) -> Vec<String> {
        let is_known = |path: &PathBuf| self.watched.links.iter().any(|link| link.at == *path);
        for link in found.links.iter().filter(|link| !self.watched.listed.contains(link) && !is_known(link)) {
            self.quarantine.take(link, Some("is a link with a guarded name".to_owned()));
        }
        let is_of_run = |bare: &PathBuf| {
            git_dir::is_bare(bare) && !self.watched.known.iter().any(|known| known.path.starts_with(bare))
        };
        let (of_run, others): (Vec<_>, Vec<_>) = found.bare.into_iter().partition(is_of_run);
        let has_new = |bare: &PathBuf| git_dir::parts_of_bare(bare).any(|part| self.is_new(&part));
        let made = found.repositories.into_iter().filter(|path| self.is_new(path));
        let mut made: Vec<PathBuf> = made.chain(of_run.into_iter().filter(has_new)).collect();
        let paths = found.paths.into_iter().chain(others.iter().flat_map(|bare| git_dir::parts_of_bare(bare)));
        for path in paths.filter(|path| self.is_new(path)).collect::<Vec<_>>() {
            let leads = path.file_name().is_some_and(|name| name == ".git");
            if !leads || !git_dir::is_harmless_link(&path, &self.watched.repositories) {
                let reason = leads.then(|| "leads git to a repository elsewhere".to_owned());
                self.quarantine.take(&path, reason);
            }
        }
        made.retain(|repository| self.stays(repository));
        made.iter().map(|path| path.display().to_string()).collect()
    }

    /// Inspects a repository that the run created. True if the whole stays.
    fn stays(&mut self, repository: &Path) -> bool {
        let is_bare = git_dir::is_bare(repository);
        for left in git_dir::inspect(repository, &self.watched.trees) {
            if !is_bare || git_dir::is_of_bare(repository, &left.path) {
                self.quarantine.take(&left.path, Some(left.reason));
            }
        }
        !self.quarantine.found.iter().any(|quarantined| Path::new(&quarantined.path).starts_with(repository))
    }

    /// True if what is at a path was not there before the run, neither there nor, for a repository, elsewhere. If
    /// nothing could be made read-only, a changed path counts as new.
    fn is_new(&self, path: &PathBuf) -> bool {
        let Some(now) = identity(path) else { return false };
        let was_there = self.watched.known.iter().any(|before| {
            let is_same = (&before.path, before.node) == (&now.path, now.node);
            is_same && (self.private || before.content == now.content)
        });
        let is_moved = self.watched.repositories.iter().any(|known| known.is_at(path));
        !was_there && !is_moved && !self.watched.listed.contains(path)
    }
}
