//! Guards against files that other programs execute later: their state before a run ([`watched`]), the comparison after
//! it ([`finish`]), the repositories of runs ([`own`]), the quarantine ([`quarantine`]), and
//! the cleanup after killed runs ([`settle`]). Also the `/tmp` directory of a session.
//!
//! After a run, new files with guarded names, and new parts of repositories that git would execute later, are moved
//! into quarantine before the result is reported. A new repository stays if git executes nothing in it.

mod own;
mod quarantine;
pub(crate) mod session_tmp;
pub(crate) mod settle;
mod watched;

use std::path::{Path, PathBuf};

pub(crate) use self::own::{made_by_runs, remember};
use self::quarantine::{Quarantine, failed};
use self::watched::identity;
pub(crate) use self::watched::{KnownLink, Watched, top_of};
use crate::git_dir::{self, Violation};
use crate::names::Guarded;
use crate::nofollow;
use crate::sandbox::plan::Identity;
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
    let mut quarantine = Quarantine::of(home);
    let mut quarantined = Vec::new();
    for finding in in_repositories {
        quarantined.push(quarantine.move_in(&finding.path, finding.reason));
        if let Some(Err(e)) = finding.put_back.map(|text| git_dir::put_back(&finding.path, &mut text.as_bytes(), None))
        {
            quarantined.push(failed(&finding.path, e));
        }
    }
    let mut after = Comparison { watched, private, quarantine, quarantined };
    after.quarantine_pristine();
    after.restore_links();
    let found = after.search();
    let own_repositories = after.quarantine_new(found);
    Findings { quarantined: after.quarantined, own_repositories }
}

/// Compares the file system after a run with the state before it.
struct Comparison<'a> {
    watched: &'a Watched,
    /// True if the run had its own mounts, so that existing guarded files could not be changed.
    private: bool,
    quarantine: Quarantine<'a>,
    quarantined: Vec<Quarantined>,
}

impl Comparison<'_> {
    /// Repositories that are still at their path. A repository that replaced a moved one is not included.
    fn in_place(&self) -> Vec<PathBuf> {
        let there = self.watched.repositories.iter().filter(|repository| repository.is_at(&repository.path));
        there.map(|repository| repository.path.clone()).collect()
    }

    /// Quarantines pristine paths that did not exist before the run.
    fn quarantine_pristine(&mut self) {
        for path in self.watched.absent.iter().filter(|path| identity(path).is_some()) {
            let reason = "is pristine in the policy and did not exist before the run".to_owned();
            self.quarantined.push(self.quarantine.move_in(path, Some(reason)));
        }
    }

    /// Restores links with guarded names that the run removed or replaced.
    fn restore_links(&mut self) {
        for KnownLink { link: before, target } in &self.watched.links {
            let path = &before.path;
            let now = identity(path);
            let parent = path.parent().and_then(|parent| nofollow::open(parent).ok().flatten());
            // If the directory no longer exists, no program reads the name.
            let (false, Some(parent), Some(name)) = (now.as_ref() == Some(before), parent, path.file_name()) else {
                continue;
            };
            let reason = Some("was a link of the owner and was restored".to_owned());
            let mut quarantined =
                Quarantined { path: path.display().to_string(), reason: reason.clone(), ..Quarantined::default() };
            if now.is_some() {
                quarantined = self.quarantine.move_in(path, reason);
            }
            if let Err(e) = rustix::fs::symlinkat(target, &parent, name) {
                quarantined.error.get_or_insert(e.to_string());
            }
            self.quarantined.push(quarantined);
        }
    }

    /// Searches the trees. A directory of the run with too many entries is quarantined as a whole. A directory that
    /// still cannot be searched becomes a finding.
    fn search(&mut self) -> Guarded {
        let links: Vec<PathBuf> = self.watched.links.iter().map(|known| known.link.path.clone()).collect();
        loop {
            let (found, error) = Guarded::in_trees(&self.watched.trees, &self.in_place(), &links, self.watched.walk);
            let Some(error) = error else { return found };
            let place = PathBuf::from(error.details()["path"].as_str().unwrap_or_default());
            let made = self.made_around(&place).filter(|_| error.details().contains_key("setting"));
            let quarantined = match &made {
                Some(directory) => self.quarantine.move_in(directory, Some(error.message().to_owned())),
                None => failed(&place, std::io::Error::other(error.message().to_owned())),
            };
            let is_moved = quarantined.moved_to.is_some();
            self.quarantined.push(quarantined);
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
        let is_known = |link: &PathBuf| self.watched.links.iter().any(|known| known.link.path == *link);
        for link in found.links.iter().filter(|link| !self.watched.listed.contains(link) && !is_known(link)) {
            self.quarantined.push(self.quarantine.move_in(link, Some("is a link with a guarded name".to_owned())));
        }
        let mut made = found.repositories;
        made.retain(|repository| !self.watched.listed.contains(repository) && !self.was_there(repository));
        let new = found.paths.into_iter().filter(|path| !self.watched.listed.contains(path) && self.is_new(path));
        let (of_bare, others): (Vec<_>, Vec<_>) = new.partition(|path| self.is_of_made(path));
        for path in others {
            let leads = path.file_name().is_some_and(|name| name == ".git");
            if leads && git_dir::is_harmless_link(&path, &self.watched.repositories) {
                continue;
            }
            let reason = leads.then(|| "leads git to a repository elsewhere".to_owned());
            self.quarantined.push(self.quarantine.move_in(&path, reason));
        }
        let mut bare: Vec<PathBuf> = of_bare.iter().filter_map(|path| path.parent().map(Path::to_owned)).collect();
        bare.dedup();
        made.retain(|repository| self.inspect(repository, None));
        bare.retain(|repository| self.inspect(repository, Some(&of_bare)));
        made.into_iter().chain(bare).map(|path| path.display().to_string()).collect()
    }

    /// Inspects a repository that the run created. In a bare repository only the paths in `only` are inspected. True
    /// if the whole repository stays.
    fn inspect(&mut self, repository: &Path, only: Option<&[PathBuf]>) -> bool {
        let mut left = match git_dir::inspect(repository, &self.watched.trees) {
            Ok(left) => left,
            Err(_) if only.is_none() => {
                self.quarantined.push(self.quarantine.move_in(repository, Some("cannot be inspected".to_owned())));
                return false;
            }
            Err(e) => {
                self.quarantined.push(failed(repository, e));
                return false;
            }
        };
        if let Some(new) = only {
            left.retain(|left| git_dir::is_of_git(&left.path) || new.contains(&repository.join(&left.path)));
        }
        for left in left {
            self.quarantined.push(self.quarantine.move_in(&repository.join(&left.path), left.reason));
        }
        !self.quarantined.iter().any(|quarantined| Path::new(&quarantined.path).starts_with(repository))
    }

    /// True if this repository existed before the run, even if the run moved it.
    fn was_there(&self, repository: &Path) -> bool {
        let closed = &self.watched.closed;
        self.watched.repositories.iter().any(|known| known.is_at(repository))
            || identity(repository)
                .is_some_and(|now| closed.iter().any(|before| before.path == now.path && is_same(before, &now)))
    }

    /// True if a path is a possibly harmless part of a bare repository that the run created.
    fn is_of_made(&self, path: &Path) -> bool {
        let Some(parent) = path.parent().filter(|_| git_dir::may_be_harmless(path)) else { return false };
        let known = self.watched.known.iter().chain(&self.watched.closed);
        git_dir::is_bare(parent) && !known.map(|known| &known.path).any(|path| path.starts_with(parent))
    }

    /// True if a path did not exist before the run. If nothing could be made read-only, a changed path counts as new.
    fn is_new(&self, path: &Path) -> bool {
        let Some(now) = identity(path) else { return false };
        !self.watched.known.iter().chain(&self.watched.closed).any(|before| {
            let same = before.path == now.path && is_same(before, &now);
            same && (self.private || before.content == now.content)
        })
    }
}

fn is_same(before: &Identity, now: &Identity) -> bool {
    (before.dev, before.ino) == (now.dev, now.ino)
}
