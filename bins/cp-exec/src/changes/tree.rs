//! The walk through writable trees. Links are not followed; `.git`, other file systems and entries that git ignores are
//! not entered.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::exec_result::{FileKind, FileState};
use cp_ledger::format::line::Hash;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::store::{Entry, directories, entries};
use crate::digest;
use crate::file_id::FileId;
use crate::listings;
use crate::nofollow::{self, each};
use crate::serde_paths::{any_bytes, path_bytes};

/// The largest file of a working tree that is kept and hashed.
pub(super) const LARGEST: u64 = 16 << 20;

impl Entry {
    /// The entry with this name in a directory.
    fn at(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<Self> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut entry = Self::of(&stat);
        if entry.kind == FileKind::Link {
            let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
            entry.target = Some(OsString::from_vec(target.into_bytes()));
        }
        Ok(entry)
    }

    fn of_path(path: &Path) -> rustix::io::Result<Self> {
        let (parent, name) = nofollow::open_parent(path)?;
        Self::at(&parent, name)
    }

    pub(super) fn state(&self, hash: Option<Hash>) -> FileState {
        let target = self.target.as_ref().and_then(|target| target.to_str()).map(str::to_owned);
        FileState::new(self.kind, self.mode, hash, target)
    }

    /// True if a row of a manifest lists the entry as it is. The times of a directory follow its entries.
    pub(super) fn is_listed(&self, row: &Self) -> bool {
        let is_same = match self.kind {
            FileKind::File => self.id == row.id,
            _ => self.id.node() == row.id.node() && self.target == row.target,
        };
        is_same && (self.kind, self.mode, self.is_ignored) == (row.kind, row.mode, row.is_ignored)
    }

    fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        };
        Self { kind, id: FileId::from(stat), mode: stat.st_mode & 0o7777, target: None, is_ignored: false, kept: None }
    }
}

/// The directories of a tree.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Tree {
    #[serde(with = "path_bytes")]
    pub(super) root: PathBuf,
    /// Those that were read, by path, so that a directory comes before those in it.
    #[serde(skip)]
    pub(super) directories: BTreeMap<PathBuf, Directory>,
    /// Directories that were not entered, although a run may have changed something in them.
    #[serde(with = "any_bytes")]
    pub(super) unseen: Vec<PathBuf>,
    /// The file that lists the directories, for a start after a kill.
    #[serde(with = "path_bytes")]
    pub(super) manifest: PathBuf,
}

/// A directory that was read.
#[derive(Default)]
pub(super) struct Directory {
    /// By name, in byte order.
    pub entries: Vec<(OsString, Entry)>,
    /// After a run, the places of files before it that are the same; they are no entries.
    pub unchanged: Vec<usize>,
    /// `None` if it is read from a manifest.
    ignored: Option<Ignored>,
}

impl Tree {
    /// Takes the directories from a manifest.
    pub(super) fn list(&mut self, manifest: &[u8]) {
        self.directories = directories(manifest)
            .map(|(path, rows)| {
                let entries = entries(rows).map(|(name, entry, _)| (name.to_owned(), entry)).collect();
                (path.to_owned(), Directory { entries, ..Directory::default() })
            })
            .collect();
    }

    /// Walks a repository, where no pattern holds.
    pub(crate) fn of_git(repository: &Path, exclude: &Exclude<'_>) -> Self {
        Walk { ignores: false, ..Walk::new(exclude, u64::MAX) }.tree(repository, None)
    }

    /// The entries with their directories and names.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Path, &OsStr, &Entry)> {
        self.directories.iter().flat_map(|(path, directory)| {
            directory.entries.iter().map(|(name, entry)| (path.as_path(), name.as_os_str(), entry))
        })
    }

    /// The paths of the entries of some kinds.
    pub(crate) fn paths_of(&self, kinds: &[FileKind]) -> impl Iterator<Item = PathBuf> {
        self.entries().filter(|(.., entry)| kinds.contains(&entry.kind)).map(|(path, name, _)| path.join(name))
    }

    /// Leaves out the entries whose path is not meant.
    pub(crate) fn retain(&mut self, is_meant: impl Fn(&Path) -> bool) {
        for (path, directory) in &mut self.directories {
            directory.entries.retain(|(name, _)| is_meant(&path.join(name)));
        }
    }
}

/// True for an entry of a directory that a walk leaves out.
pub(crate) type Exclude<'a> = dyn Fn(&Path, &OsStr) -> bool + Sync + 'a;

/// A walk through trees that may read a number of entries in all.
pub(super) struct Walk<'a> {
    exclude: &'a Exclude<'a>,
    /// The number of entries that may still be read.
    left: AtomicU64,
    /// True if patterns of ignored names hold.
    ignores: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(exclude: &'a Exclude<'a>, most: u64) -> Self {
        Self { exclude, left: AtomicU64::new(most), ignores: true }
    }

    /// Walks one tree, one level after the other. If the tree before a run and its time are given, its ignore rules
    /// apply, because a run may change the patterns, and its unchanged files are not listed again.
    pub(super) fn tree(&self, root: &Path, before: Option<(&Tree, i64)>) -> Tree {
        let mut tree = Tree { root: root.to_owned(), ..Tree::default() };
        let device = match nofollow::open_with(root, READ) {
            Ok(directory) => nofollow::node(&directory).map_or(0, |(device, _)| device),
            Err(Errno::NOTDIR) => {
                tree.directories.extend(of_file(root));
                return tree;
            }
            Err(Errno::NOENT) => return tree,
            Err(_) => {
                tree.unseen.push(root.to_owned());
                return tree;
            }
        };
        let above = if self.ignores { Ignored::above(root) } else { Ignored::default() };
        // The directories of a level, and the ignore rules of those above them.
        let mut level = vec![(root.to_owned(), above)];
        while !level.is_empty() {
            let read = each(level, |(path, above)| {
                let before = before.and_then(|(before, now)| Some((before.directories.get(&path)?, now)));
                (self.read(&path, &above, before), path)
            });
            level = Vec::new();
            for (read, path) in read {
                let Ok(directory) = read else {
                    tree.unseen.push(path);
                    continue;
                };
                for (name, entry) in &directory.entries {
                    if entry.kind != FileKind::Directory || entry.is_ignored {
                        continue;
                    }
                    if entry.id.dev == device {
                        level.push((path.join(name), directory.ignored.clone().unwrap_or_default()));
                    } else {
                        tree.unseen.push(path.join(name));
                    }
                }
                tree.directories.insert(path, directory);
            }
        }
        tree
    }

    fn read(&self, path: &Path, above: &Ignored, before: Option<(&Directory, i64)>) -> io::Result<Directory> {
        let directory = nofollow::open_with(path, READ)?;
        let listing = listings::of(&directory)?;
        let (before, now) = before.unzip();
        let ignored = before.and_then(|before| before.ignored.clone());
        let within = || self.ignores.then(|| above.within(path, |name| listing.iter().any(|(other, _)| other == name)));
        let ignored = ignored.or_else(within).unwrap_or_default();
        let (mut found, mut unchanged) = (Vec::new(), Vec::new());
        let mut known = before.iter().flat_map(|before| &before.entries).enumerate().peekable();
        for (name, _) in listing.iter() {
            if name == ".git" && self.ignores || (self.exclude)(path, name) {
                continue;
            }
            // Without one, the entry was removed in the meantime.
            let Ok(mut entry) = Entry::at(&directory, name) else { continue };
            while known.next_if(|(_, (other, _))| other.as_os_str() < name).is_some() {}
            let same = known.next_if(|(_, (other, same))| other == name && same.kind == entry.kind);
            let is_settled = || now.is_some_and(|now| entry.id.is_settled(now));
            let is_unchanged = |same: &Entry| same.kind == FileKind::File && same.id == entry.id && is_settled();
            if let Some((place, _)) = same.filter(|(_, (_, same))| is_unchanged(same)) {
                unchanged.push(place);
                continue;
            }
            entry.is_ignored = match same {
                Some((_, (_, same))) => same.is_ignored,
                None => ignored.contains(path, name, entry.kind == FileKind::Directory),
            };
            found.push((name.to_owned(), entry));
        }
        let count = (found.len() + unchanged.len()) as u64;
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count));
        left.map_err(|_| io::ErrorKind::QuotaExceeded)?;
        Ok(Directory { entries: found, unchanged, ignored: Some(ignored) })
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// The directory of a root that is a file, with this entry only.
fn of_file(root: &Path) -> Option<(PathBuf, Directory)> {
    let entry = (root.file_name()?.to_owned(), Entry::of_path(root).ok()?);
    Some((root.parent()?.to_owned(), Directory { entries: vec![entry], ..Directory::default() }))
}

/// Opens a regular file for reading, unless its identity changed.
pub(super) fn open(path: &Path, id: &FileId) -> io::Result<std::fs::File> {
    let file = nofollow::open_file(path)?;
    if FileId::from(&file.metadata()?) == *id { Ok(file) } else { Err(io::Error::other("it changed")) }
}

/// The current state of a path; `None` if nothing exists there. A file that is too large or unreadable has no hash.
pub(crate) fn state_of(path: &Path) -> io::Result<Option<FileState>> {
    match Entry::of_path(path) {
        Ok(entry) => Ok(Some(entry.state(hash_of(path, &entry).ok()))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The hash of the content of a file of the walk.
pub(super) fn hash_of(path: &Path, entry: &Entry) -> io::Result<Hash> {
    if entry.kind != FileKind::File || entry.id.size > LARGEST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    digest::hash_of(open(path, &entry.id)?)
}

/// The longest file of patterns that is read.
const LONGEST: u64 = 1 << 20;

/// The patterns of a directory and of the directories above it.
#[derive(Clone, Default)]
struct Ignored(Option<Arc<Level>>);

struct Level {
    patterns: Gitignore,
    above: Ignored,
}

impl Ignored {
    /// The patterns that the directories above, in the same repository, define for a directory.
    fn above(directory: &Path) -> Self {
        let is_repository = |directory: &Path| directory.join(".git").symlink_metadata().is_ok();
        if is_repository(directory) || !directory.ancestors().any(is_repository) {
            return Self::default();
        }
        let Some(parent) = directory.parent() else { return Self::default() };
        Self::above(parent).within(parent, |name| parent.join(name).symlink_metadata().is_ok())
    }

    /// The patterns for a directory, including its own.
    fn within(&self, directory: &Path, has: impl Fn(&str) -> bool) -> Self {
        let is_repository = has(".git");
        let above = if is_repository { Self::default() } else { self.clone() };
        if !is_repository && !has(".gitignore") {
            return above;
        }
        let mut builder = GitignoreBuilder::new(directory);
        let is_short =
            |file: &PathBuf| file.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST);
        for file in
            [".git/info/exclude", ".gitignore"].map(|file| directory.join(file)).iter().filter(|file| is_short(file))
        {
            // Git also ignores invalid patterns.
            drop(builder.add(file));
        }
        match builder.build() {
            Ok(patterns) if !patterns.is_empty() => Self(Some(Arc::new(Level { patterns, above }))),
            _ => above,
        }
    }

    /// True if git ignores an entry of the directory.
    fn contains(&self, directory: &Path, name: &OsStr, is_directory: bool) -> bool {
        let mut level = &self.0;
        if level.is_none() {
            return false;
        }
        let path = directory.join(name);
        while let Some(Level { patterns, above }) = level.as_deref() {
            match patterns.matched(&path, is_directory) {
                Match::None => level = &above.0,
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}
