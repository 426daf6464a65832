//! The repositories of a run's writable trees. `.git` is bound writable, so that git's own locks work between the run
//! and its owner. Parts that name programs or redirect git are read-only ([`find`]). A [`Session`] starts before a
//! run and reports afterwards which parts must not stay.
//!
//! A [`Watch`] observes the read-only parts during a run, and covers those anew that another process replaces.

mod binds;
mod history;
mod made;
mod placeholder;
mod settings;
mod unchanged;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;

use crate::exec_result::FileKind;
use rustix::fs::{CWD, Mode, OFlags};
use serde::Deserialize;

pub(crate) use self::binds::{Repository, find};
pub(crate) use self::history::{Recovery, Snapshot};
pub(crate) use self::made::{inspect, is_bare, is_of_bare, parts_of_bare};
pub(crate) use self::placeholder::DIRECTORY as KEEP;
use self::placeholder::Placeholders;
pub(crate) use self::settings::{addresses, parts as key_parts, passes_from_owner};
pub(crate) use self::unchanged::{output_of, start, without_unchanged};
pub(crate) use self::watch::Watch;
use crate::changes::{Known, Store, Tree, keep_history};
use crate::data::parsed;
use crate::nofollow::Node;

/// What git reads and writes, see `git.toml`.
#[derive(Deserialize)]
pub(crate) struct GitData {
    pub hooks: Vec<String>,
    /// The entries of a repository, and of directories in it.
    pub entries: BTreeMap<String, Vec<String>>,
    pub worktree: Vec<String>,
    pub strategies: Vec<String>,
    pub judged: Vec<String>,
    pub parts: BTreeMap<String, Placeholder>,
    pub parts_of_worktree: BTreeMap<String, Placeholder>,
    pub settings: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub harmless: BTreeMap<String, String>,
    pub initial: Vec<String>,
    pub owner: Vec<String>,
    pub owner_alone: Vec<String>,
    pub owner_files: Vec<String>,
    /// The values of each key.
    pub lfs: BTreeMap<String, Vec<String>>,
    /// The files of each directory.
    pub states: BTreeMap<String, Vec<String>>,
}

/// What a run sees where a part is absent.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Placeholder {
    Nothing,
    File,
    Directory,
}

pub(crate) static GIT: LazyLock<GitData> = LazyLock::new(|| parsed(include_str!("git.toml")));

/// True if a list has a word.
fn has(list: &[String], word: impl AsRef<std::ffi::OsStr>) -> bool {
    list.iter().any(|known| known.as_str() == word.as_ref())
}

/// The longest configuration file that is read.
const LONGEST: u64 = 1 << 20;

const UNKNOWN: &str = "names programs or leads git elsewhere, or git does not make it there";
const SPECIAL: &str = "is a special file, or a link out of the repository";
const OF_OWNER: &str =
    "the repository of a submodule is made by the repository's owner, outside a run: `git submodule update --init`";

/// A part of a repository that must not stay.
pub(crate) struct Violation {
    pub path: PathBuf,
    pub reason: String,
    /// The content of the file before the run.
    pub put_back: Option<String>,
}

impl Violation {
    fn new(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into(), put_back: None }
    }
}

/// Leaves out what lies in another finding, because a directory is moved together with its content.
fn outermost(mut found: Vec<Violation>) -> Vec<Violation> {
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup_by(|below, above| below.path.starts_with(&above.path));
    found
}

/// The repositories of one run, while it is active.
pub(crate) struct Session {
    /// They are held until the run has ended.
    placeholders: Vec<Placeholders>,
    pub watch: Option<Watch>,
    /// Protection that could not be provided.
    pub missing: Vec<String>,
    /// The fault of a setting that another process replaced at the end of the run.
    pub unsettled: Option<String>,
}

impl Session {
    /// Prepares the repositories for a run. `is_lasting`: for an agent, which may run all day.
    pub(crate) fn begin(repositories: &mut [Repository], is_lasting: bool, store: &Store) -> Self {
        let (mut missing, mut placeholders) = (Vec::new(), Vec::new());
        for repository in &mut *repositories {
            let shown = format!("repository: {}", repository.path.display());
            match Placeholders::make(repository, is_lasting) {
                Ok(made) => placeholders.push(made),
                Err(e) => missing.push(format!("{shown}: settings that are not there are not read-only: {e}")),
            }
            missing.extend(repository.note(store).into_iter().map(|what| format!("{shown}: {what}")));
        }
        let unused: Vec<&PathBuf> = placeholders.iter().flat_map(|made| &made.unused).collect();
        let watch = (!repositories.is_empty()).then(|| Watch::begin(repositories, &unused, &mut missing));
        Self { placeholders, watch, missing, unsettled: None }
    }

    /// The parts of repositories that must not stay after the run. `private`: the run had its own mounts.
    pub(crate) fn finish(&mut self, repositories: &[Repository], private: bool) -> Vec<Violation> {
        let mut watch = self.watch.take();
        self.unsettled = watch.as_mut().filter(|_| private).and_then(Watch::unsettled);
        let settings = watch.iter().flat_map(|watch| watch.compare(private));
        let findings = repositories.iter().flat_map(Repository::compare).chain(settings).collect();
        self.placeholders.clear();
        // The kernel takes more than 10 ms to close it, and the answer need not wait for it. Another process that closes
        // it would outlive this one, and not every container has a first process that waits for it.
        _ = thread::Builder::new().spawn(|| drop(watch));
        findings
    }
}

impl Repository {
    /// Notes what is there before a run, and keeps the history. Returns what cannot be kept.
    fn note(&mut self, store: &Store) -> Vec<String> {
        let session = store.session();
        let noted = session.as_ref().map(|session| session.last(&self.path, None)).unwrap_or_default();
        let mut tree = walked(&self.path, true, &noted.known());
        self.there = self.suspects(&tree).map(|(path, _)| path).chain(lock_files(&tree)).collect();
        tree.retain(|path| history::is_history(self, path));
        self.references = odd_references(&self.path, &tree);
        let kept = session.and_then(|session| keep_history(&session, &mut tree, &noted));
        let failed = kept.as_ref().err().map(|e| format!("its history is not kept: {e}"));
        let (manifest, lost) = kept.unwrap_or_default();
        let snapshot = |manifest| Snapshot { repository: self.path.clone(), manifest, is_complete: lost == 0 };
        self.snapshot = manifest.map(snapshot);
        let lost = (lost > 0).then(|| {
            format!("{lost} files of its history are not kept, because they are too large, or the store is full")
        });
        let is_reftable = self.path.join("reftable").symlink_metadata().is_ok();
        let reftable = is_reftable.then(|| "its references are in a reftable, of which nothing is kept".to_owned());
        failed.into_iter().chain(lost).chain(reftable).collect()
    }

    /// The parts that must not stay after a run, apart from settings, which only the owner can have changed. Removes
    /// the lock files that the run left.
    pub(crate) fn compare(&self) -> Vec<Violation> {
        let tree = walked(&self.path, false, &Known::default());
        let is_new = |path: &PathBuf| !self.there.contains(path);
        made::remove_locks(self, lock_files(&tree).filter(is_new).collect());
        let new = self.suspects(&tree).filter(|(path, _)| is_new(path));
        let mut found: Vec<_> = new.filter_map(|(path, fault)| Some(Violation::new(path, fault?))).collect();
        found.extend(self.fault_in_packed_references());
        outermost(found)
    }

    /// What a run must not leave in the repository, with the reason. A linked working tree has none if it is as git
    /// makes it.
    fn suspects(&self, tree: &Tree) -> impl Iterator<Item = (PathBuf, Option<String>)> {
        let names = || GIT.parts.keys().chain(GIT.parts_of_worktree.keys());
        let parts = self.directories.iter().flat_map(move |directory| names().map(|name| directory.join(name)));
        let parts = parts.chain(self.named.iter().cloned()).filter(|path| path.symlink_metadata().is_ok());
        let inner = binds::inner_directories(&self.path).into_iter().map(|directory| {
            let is_tree = directory.parent() == Some(&self.path.join("worktrees"));
            let fault = if is_tree { made::fault_in_worktree(&directory) } else { Some(OF_OWNER.to_owned()) };
            (directory, fault)
        });
        let states = made::faulty_states(&self.directories).map(|state| (state.path, Some(state.reason)));
        let parts = parts.map(|path| (path, Some(UNKNOWN.to_owned())));
        let special = tree.paths_of(&SPECIAL_KINDS).map(|path| (path, Some(SPECIAL.to_owned())));
        parts.chain(inner).chain(special).chain(states)
    }

    /// Packed references that git does not make in ordinary work, such as those that replace objects, with the file
    /// without them.
    fn fault_in_packed_references(&self) -> Option<Violation> {
        let path = self.path.join("packed-refs");
        let now = read_text(&path, u64::MAX)?;
        let is_fine = |line: &str| !is_odd(line) || self.references.iter().any(|known| known == line);
        let odd = now.lines().find(|line| !is_fine(line))?.split_once(' ')?.1;
        let (mut fine, mut is_kept) = (String::new(), true);
        for line in now.split_inclusive('\n') {
            // A line with the target of a tag belongs to the line before.
            is_kept = if line.starts_with('^') { is_kept } else { is_fine(line.trim_end()) };
            fine.push_str(if is_kept { line } else { "" });
        }
        let reason = format!("has {odd}, which is no branch, tag, remote branch or note");
        Some(Violation { path, reason, put_back: Some(fine) })
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
    let packed = read_text(&repository.join("packed-refs"), u64::MAX).unwrap_or_default();
    let loose = history.paths_of(&[FileKind::File]).filter_map(|path| {
        let name = path.strip_prefix(repository).ok()?.to_str().filter(|name| name.starts_with("refs/"))?;
        let line = is_odd(&format!(" {name}")).then(|| read_small(&path))?;
        Some(format!("{} {name}", line?.trim()))
    });
    packed.lines().filter(|line| is_odd(line)).map(str::to_owned).chain(loose).collect()
}

/// True if a `.git` file leads to a harmless entry for its working tree in a known repository.
pub(crate) fn is_harmless_link(file: &Path, repositories: &[Repository]) -> bool {
    let is_known = |common: &Path| repositories.iter().any(|repository| repository.path == common);
    binds::common_directory(file).is_some_and(|common| is_known(&common))
        && read_small(file).is_some_and(|text| {
            let named = text.strip_prefix("gitdir:").map(str::trim).unwrap_or_default();
            file.parent().is_some_and(|top| made::fault_in_worktree(&top.join(named)).is_none())
        })
}

/// Walks a repository. Without `objects`, the many fan-out directories of objects are not entered.
fn walked(repository: &Path, objects: bool, known: &Known<'_>) -> Tree {
    let is_own = |directory: &Path, name: &OsStr| name == KEEP && directory == repository;
    let is_fan_out = |directory: &Path, name: &OsStr| name.len() == 2 && directory.ends_with("objects");
    let exclude = |directory: &Path, name: &OsStr| is_own(directory, name) || !objects && is_fan_out(directory, name);
    Tree::of_git(repository, &exclude, known)
}

/// The kinds of special files: links, pipes and others.
const SPECIAL_KINDS: [FileKind; 2] = [FileKind::Link, FileKind::Other];

/// The files by which git knows that it is at work in a repository.
fn lock_files(tree: &Tree) -> impl Iterator<Item = PathBuf> {
    let is_lock = |path: &PathBuf| path.extension().is_some_and(|end| end == "lock") || path.ends_with("gc.pid");
    tree.paths_of(&[FileKind::File]).filter(is_lock)
}

/// The text of a small regular file. Does not block, and does not follow a link.
fn read_small(path: &Path) -> Option<String> {
    read_text(path, LONGEST)
}

fn read_text(path: &Path, longest: u64) -> Option<String> {
    String::from_utf8(open_small(CWD, path, longest).ok()?.1).ok()
}

/// A regular file up to a length, and its bytes.
fn open_small(at: impl AsFd, path: &Path, longest: u64) -> io::Result<(File, Vec<u8>)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(at, path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > longest {
        return Err(io::Error::other("is not a small regular file"));
    }
    let mut bytes = Vec::new();
    (&file).take(longest).read_to_end(&mut bytes)?;
    Ok((file, bytes))
}

/// Device and inode of a path, without following a link.
fn node_of(path: &Path) -> Option<Node> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}
