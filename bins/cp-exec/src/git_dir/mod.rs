//! The repositories of a run's writable trees. `.git` is bound writable, so that git's own locks work between the run
//! and its owner. Parts that name programs or redirect git are read-only ([`find`]). A [`Session`] starts before a
//! run and reports afterwards which parts must not stay.
//!
//! A [`Watch`] observes the read-only parts during a run, and covers those anew that another process replaces.

mod binds;
mod data;
mod history;
mod locks;
mod made;
mod placeholder;
mod settings;
mod unchanged;
mod watch;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::exec_result::FileKind;
use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

pub(crate) use self::binds::{Repository, find};
pub(crate) use self::data::GIT;
pub(crate) use self::history::{Recovery, Snapshot};
pub(crate) use self::made::{inspect, is_bare, is_of_git, may_be_harmless};
pub(crate) use self::placeholder::DIRECTORY as KEEP;
use self::placeholder::Placeholders;
use self::settings::fault_in_changed_settings;
pub(crate) use self::settings::{addresses, is_about_pushes, parts as key_parts};
pub(crate) use self::unchanged::{output_of, without_unchanged};
pub(crate) use self::watch::Watch;
use crate::changes::{Store, Tree, keep_history};
use crate::nofollow::{self, Link, NewFile, Node};
use crate::serde_paths::any_bytes;

/// The longest configuration file that is read.
const LONGEST: u64 = 1 << 20;

/// A part of a repository that must not stay.
pub(crate) struct Violation {
    pub path: PathBuf,
    /// The fault; `None` if the name shows it.
    pub reason: Option<String>,
    /// The content of the file before the run.
    pub put_back: Option<String>,
}

impl Violation {
    fn new(path: PathBuf, reason: impl Into<String>) -> Self {
        Self { path, reason: Some(reason.into()), put_back: None }
    }

    /// A part that a run has no reason to create.
    fn unknown(path: PathBuf) -> Self {
        Self { path, reason: None, put_back: None }
    }
}

/// The repositories of one run, while it is active.
pub(crate) struct Session<'a> {
    repositories: &'a [Repository],
    states: Vec<RepositoryState>,
    watch: Option<Watch>,
    /// Protection that could not be provided.
    missing: Vec<String>,
}

/// The state of a repository before a run.
struct RepositoryState {
    /// The placeholders are held until the run has ended.
    placeholders: Option<Placeholders>,
    /// The read-only files.
    files: Vec<(PathBuf, String)>,
    known: KnownParts,
}

/// The parts of a repository before a run that the run could write. They are stored, to compare the repository after a
/// run that was killed together with this program.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct KnownParts {
    /// Parts that name programs and do not exist.
    #[serde(with = "any_bytes")]
    absent: Vec<PathBuf>,
    /// Entries that are neither files nor directories.
    #[serde(with = "any_bytes")]
    special: Vec<PathBuf>,
    /// Lock files.
    #[serde(with = "any_bytes")]
    locks: Vec<PathBuf>,
    /// State directories with files or values that git does not write.
    #[serde(with = "any_bytes")]
    states: Vec<PathBuf>,
    /// References that git does not make in ordinary work, as lines of packed references.
    references: Vec<String>,
    /// The kept history, if it is kept.
    pub(crate) snapshot: Option<Snapshot>,
}

impl<'a> Session<'a> {
    /// Prepares the repositories for a run. `is_lasting`: for an agent, which may run all day.
    pub(crate) fn begin(repositories: &'a [Repository], is_lasting: bool, store: &Store) -> Self {
        let mut missing = Vec::new();
        let state = |repository| RepositoryState::of(repository, is_lasting, store, &mut missing);
        let states: Vec<_> = repositories.iter().map(state).collect();
        let unused = repositories.iter().zip(&states).flat_map(|(repository, state)| state.unused(repository));
        let unused: Vec<PathBuf> = unused.collect();
        let watch = (!repositories.is_empty()).then(|| Watch::begin(repositories, &unused)).transpose();
        let watch = watch.unwrap_or_else(|e| {
            missing.push(format!("repository: changes of its settings beside the run are not noticed: {e}"));
            None
        });
        Self { repositories, states, watch, missing }
    }

    /// The state before the run, for each repository.
    pub(crate) fn known(&self) -> Vec<KnownParts> {
        self.states.iter().map(|before| before.known.clone()).collect()
    }

    /// The watch for read-only parts that are replaced during the run.
    pub(crate) fn watch(&mut self) -> Option<&mut Watch> {
        self.watch.as_mut()
    }

    /// Compares the repositories with their state before the run. `private`: the run had its own mounts.
    pub(crate) fn finish(mut self, private: bool) -> SessionReport {
        let unsettled = self.watch.as_mut().and_then(Watch::unsettled).filter(|_| private);
        let watch = self.watch.as_ref().filter(|_| private);
        let states = self.repositories.iter().zip(&self.states);
        let findings = states.flat_map(|(repository, before)| before.compare(repository, watch)).collect();
        SessionReport { findings, unsettled, missing: self.missing }
    }
}

/// The changes of a run in repositories.
pub(crate) struct SessionReport {
    /// Parts that must not stay.
    pub findings: Vec<Violation>,
    /// The fault of a setting that another process replaced at the end of the run.
    pub unsettled: Option<String>,
    pub missing: Vec<String>,
}

impl RepositoryState {
    fn of(repository: &Repository, is_lasting: bool, store: &Store, missing: &mut Vec<String>) -> Self {
        let path = repository.path.display();
        let mut report = |what: String| missing.push(format!("repository: {path}: {what}"));
        let placeholders = Placeholders::make(repository, is_lasting)
            .map_err(|e| report(format!("settings that are not there are looked for after the run only: {e}")));
        let mut tree = walked(&repository.path, true);
        let (special, locks) = (special_entries(&tree).collect(), lock_files(&tree).collect());
        tree.retain(|path| history::is_history(repository, path));
        let kept = keep_history(store, &repository.path, &tree);
        let (manifest, lost) = kept.unwrap_or_else(|e| {
            report(format!("its history is not kept: {e}"));
            (None, 0)
        });
        if lost > 0 {
            report(format!(
                "{lost} files of its history are not kept, because they are too large, or the store is full"
            ));
        }
        if repository.path.join("reftable").symlink_metadata().is_ok() {
            report("its references are in a reftable, of which nothing is kept".to_owned());
        }
        let parts =
            repository.directories.iter().flat_map(|directory| binds::part_names().map(|name| directory.join(name)));
        let files = repository.protected().filter_map(|path| Some((path.clone(), read_small(path)?)));
        let files = files.collect();
        let known = KnownParts {
            special,
            locks,
            absent: parts.filter(|path| path.symlink_metadata().is_err()).collect(),
            states: faulty_states(repository).map(|(path, _)| path).collect(),
            references: odd_references(&repository.path, &tree),
            snapshot: manifest.map(|manifest| Snapshot { repository: repository.path.clone(), manifest }),
        };
        Self { placeholders: placeholders.ok(), files, known }
    }

    /// The paths that have no placeholder although git would read them.
    fn unused(&self, repository: &Repository) -> Vec<PathBuf> {
        let is_used = self.placeholders.as_ref().is_none_or(|placeholders| placeholders.has_common);
        let absent = repository.absent.iter().filter(|_| !is_used).map(|(path, _)| path);
        absent.filter(|path| placeholder::is_common(path)).cloned().collect()
    }

    /// The parts that must not stay. Without a watch the run may have written each of them.
    fn compare(&self, repository: &Repository, watch: Option<&Watch>) -> Vec<Violation> {
        let mut found = self.known.compare(repository);
        for (path, before) in &self.files {
            let before = watch.and_then(|watch| watch.accepted(path)).unwrap_or(before);
            let now = read_small(path);
            if now.as_deref() == Some(before) || watch.is_some_and(|watch| !watch.may_be_written(path)) {
                continue;
            }
            let wrong = match &now {
                Some(now) => fault_in_changed_settings(before, now, path),
                None => Some("is no longer a regular file".to_owned()),
            };
            let put_back = Some(before.to_owned());
            found.extend(wrong.map(|reason| Violation { path: path.clone(), reason: Some(reason), put_back }));
        }
        found
    }
}

impl KnownParts {
    /// Compares a repository with its state before a run that was killed together with this program. Its settings were
    /// read-only in the run, so the owner has changed them. Removes the lock files that the run left.
    pub(crate) fn compare(&self, repository: &Repository) -> Vec<Violation> {
        let mut found = Vec::new();
        let is_there = |path: &&PathBuf| path.symlink_metadata().is_ok();
        found.extend(self.absent.iter().filter(is_there).cloned().map(Violation::unknown));
        let without_placeholder = repository.without_placeholder.iter().filter(is_there).cloned();
        found.extend(without_placeholder.map(|path| Violation::new(path, "the repository's configuration names it")));
        let is_moved = |link: &&Link| fs::read_link(&link.at).ok().as_ref() != Some(&link.to);
        let moved = repository.links.iter().filter(is_moved).map(|link| &link.at).filter(is_there);
        found.extend(moved.map(|at| Violation::new(at.clone(), "is no longer the same link")));
        let inner =
            binds::inner_directories(&repository.path).into_iter().filter(|path| !repository.inner.contains(path));
        let worktrees = repository.path.join("worktrees");
        let (trees, modules): (Vec<_>, Vec<_>) = inner.partition(|path| path.parent() == Some(&worktrees));
        let fault = |path: PathBuf| made::fault_in_worktree(&path).map(|fault| Violation::new(path, fault));
        found.extend(trees.into_iter().filter_map(fault));
        found.extend(modules.into_iter().map(|path| Violation::new(path, OF_OWNER)));
        let tree = walked(&repository.path, false);
        locks::remove(repository, lock_files(&tree).filter(|path| !self.locks.contains(path)).collect());
        let special = special_entries(&tree).filter(|path| !self.special.contains(path));
        found.extend(special.map(|path| Violation::new(path, "is a special file, or a link out of the repository")));
        let states = faulty_states(repository).filter(|(path, _)| !self.states.contains(path));
        found.extend(states.map(|(path, fault)| Violation::new(path, fault)));
        found.extend(self.fault_in_packed_references(repository));
        // The content of a directory is moved together with the directory.
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found.dedup_by(|below, above| below.path.starts_with(&above.path));
        found
    }

    /// Packed references that git does not make in ordinary work, such as those that replace objects, with the file
    /// without them.
    fn fault_in_packed_references(&self, repository: &Repository) -> Option<Violation> {
        let path = repository.path.join("packed-refs");
        let now = read_bounded(&path, u64::MAX)?;
        let is_fine = |line: &str| !is_odd(line) || self.references.iter().any(|known| known == line);
        let odd = now.lines().find(|line| !is_fine(line))?.split_once(' ')?.1.to_owned();
        let (mut fine, mut is_kept) = (String::new(), true);
        for line in now.split_inclusive('\n') {
            // A line with the target of a tag belongs to the line before.
            is_kept = if line.starts_with('^') { is_kept } else { is_fine(line.trim_end()) };
            fine.push_str(if is_kept { line } else { "" });
        }
        let reason = format!("has {odd}, which is no branch, tag, remote branch or note");
        Some(Violation { path, reason: Some(reason), put_back: Some(fine) })
    }
}

/// True for a line of packed references whose reference is no branch, tag, remote branch, note or stash.
fn is_odd(line: &str) -> bool {
    const ORDINARY: [&str; 5] = ["refs/heads/", "refs/tags/", "refs/remotes/", "refs/notes/", "refs/stash"];
    let name = line.split_once(' ').filter(|_| !line.starts_with('#')).map(|(_, name)| name);
    name.is_some_and(|name| !ORDINARY.iter().any(|ordinary| name.starts_with(ordinary)))
}

/// The odd references of a repository, packed or among the files of its history.
fn odd_references(repository: &Path, history: &Tree) -> Vec<String> {
    let packed = read_bounded(&repository.join("packed-refs"), u64::MAX).unwrap_or_default();
    let loose = history.paths_of(&[FileKind::File]).filter_map(|path| {
        let name = path.strip_prefix(repository).ok()?.to_str().filter(|name| name.starts_with("refs/"))?;
        let line = is_odd(&format!(" {name}")).then(|| read_small(&path))?;
        Some(format!("{} {name}", line?.trim()))
    });
    packed.lines().filter(|line| is_odd(line)).map(str::to_owned).chain(loose).collect()
}

const OF_OWNER: &str =
    "the repository of a submodule is made by the repository's owner, outside a run: `git submodule update --init`";

/// State directories with files or values that git does not write, and their faults.
fn faulty_states(repository: &Repository) -> impl Iterator<Item = (PathBuf, String)> {
    let names = || GIT.states.keys();
    let states = repository.directories.iter().flat_map(move |directory| names().map(|name| directory.join(name)));
    let there = states.filter(|path| path.symlink_metadata().is_ok());
    there.filter_map(|path| made::fault_in_state(CWD, &path).map(|fault| (path, fault)))
}

/// True if a `.git` file leads to a harmless entry for its working tree in a known repository.
pub(crate) fn is_harmless_link(file: &Path, repositories: &[Repository]) -> bool {
    let is_known = |common: &Path| repositories.iter().any(|repository| repository.path == common);
    binds::common_directory(file).is_some_and(|(common, _)| is_known(&common))
        && read_small(file).is_some_and(|text| {
            let named = text.strip_prefix("gitdir:").map(str::trim).unwrap_or_default();
            file.parent().is_some_and(|top| made::fault_in_worktree(&top.join(named)).is_none())
        })
}

/// Walks a repository. Without `objects`, the many fan-out directories of objects are not entered.
fn walked(repository: &Path, objects: bool) -> Tree {
    let is_fan_out = |path: &Path| {
        path.parent().is_some_and(|parent| parent.ends_with("objects"))
            && path.file_name().is_some_and(|name| name.len() == 2)
    };
    let own = repository.join(KEEP);
    Tree::of_git(repository, &|path| path == own || !objects && is_fan_out(path))
}

/// Links, pipes and other special files.
fn special_entries(tree: &Tree) -> impl Iterator<Item = PathBuf> {
    tree.paths_of(&[FileKind::Link, FileKind::Other])
}

fn lock_files(tree: &Tree) -> impl Iterator<Item = PathBuf> {
    tree.paths_of(&[FileKind::File]).filter(|path| path.extension().is_some_and(|end| end == "lock"))
}

/// The text of a small regular file. Does not block, and does not follow a link.
fn read_small(path: &Path) -> Option<String> {
    read_bounded(path, LONGEST)
}

fn read_bounded(path: &Path, longest: u64) -> Option<String> {
    String::from_utf8(read_at(CWD, path, longest).ok()?).ok()
}

/// The bytes of a regular file up to a length. Does not block, and does not follow a link.
fn read_at(at: impl AsFd, path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(at, path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > longest {
        return Err(io::Error::other("is not a small regular file"));
    }
    let mut bytes = Vec::new();
    file.take(longest).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Device and inode of a path, without following a link.
fn node_of(path: &Path) -> Option<Node> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Writes a file atomically, with the owner of its directory. Without `mode` it is one that everybody may read.
pub(crate) fn put_back(path: &Path, text: &mut impl io::Read, mode: Option<u32>) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = nofollow::open_with(parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut new = NewFile::make(directory.as_fd())?;
    io::copy(text, &mut new.file)?;
    let owner = rustix::fs::fstat(&directory)?;
    if rustix::process::geteuid().as_raw() != owner.st_uid {
        std::os::unix::fs::fchown(&new.file, Some(owner.st_uid), Some(owner.st_gid))?;
    }
    rustix::fs::fchmod(&new.file, Mode::from_raw_mode(mode.unwrap_or(0o644)))?;
    new.place(name)
}

/// Gives a file that this program created as root to the owner of a directory.
fn give_to_owner_of(directory: &Path, made: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(directory)?;
    if rustix::process::geteuid().as_raw() != meta.uid() {
        std::os::unix::fs::lchown(made, Some(meta.uid()), Some(meta.gid()))?;
    }
    Ok(())
}
