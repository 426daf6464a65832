//! The walk through writable trees. Links are not followed; `.git`, other file systems and entries that git ignores are
//! not entered.

use std::collections::{BTreeMap, HashMap};
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
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::rows::{Entry, Manifest, Row, Rows};
use crate::digest;
use crate::file_id::FileId;
use crate::listings;
use crate::nofollow::{self, each};
use crate::serde_paths::{any_bytes, path_bytes};

/// The largest file of a working tree that is kept and hashed.
pub(super) const LARGEST: u64 = 16 << 20;

/// The entry with this name in a directory, and the target of a link.
fn entry_at(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<(Entry, OsString)> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    let is_link = kind == FileKind::Link;
    let target = is_link.then(|| rustix::fs::readlinkat(directory, name, Vec::new())).transpose()?.unwrap_or_default();
    let mode = (stat.st_mode & 0o7777) as u16;
    Ok((Entry::new(FileId::from(&stat), mode, kind), OsString::from_vec(target.into_bytes())))
}

fn entry_of(path: &Path) -> rustix::io::Result<(Entry, OsString)> {
    let (parent, name) = nofollow::open_parent(path)?;
    entry_at(&parent, name)
}

/// The state of an entry in a record.
pub(super) fn state(entry: &Entry, target: &OsStr, hash: Option<Hash>) -> FileState {
    let target = target.to_str().filter(|_| entry.kind == FileKind::Link).map(str::to_owned);
    FileState::new(entry.kind, entry.mode.into(), hash, target)
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
    /// The rows of its entries; after a run, only of new and of changed ones.
    pub rows: Vec<u8>,
    /// After a run, the places of the rows before it that do not hold any more.
    pub outdated: Vec<usize>,
    /// `None` if it is read from a manifest.
    ignored: Option<Ignored>,
}

impl Tree {
    /// Takes the directories from a manifest.
    pub(super) fn list(&mut self, manifest: &Manifest) {
        let directory = |rows: &[u8]| Directory { rows: rows.to_owned(), ..Directory::default() };
        self.directories = manifest.directories().map(|(path, rows)| (path.to_owned(), directory(rows))).collect();
    }

    /// Walks a repository, where no pattern holds.
    pub(crate) fn of_git(repository: &Path, exclude: &Exclude<'_>, known: &Known<'_>) -> Self {
        Walk { ignores: false, ..Walk::new(exclude, u64::MAX) }.tree(repository, known)
    }

    /// The rows with their directories.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Path, Row<'_>)> {
        let directories = self.directories.iter();
        directories.flat_map(|(path, directory)| Rows::new(&directory.rows).map(|row| (path.as_path(), row)))
    }

    /// The paths of the entries of some kinds.
    pub(crate) fn paths_of(&self, kinds: &[FileKind]) -> impl Iterator<Item = PathBuf> {
        self.rows().filter(|(_, row)| kinds.contains(&row.entry.kind)).map(|(path, row)| path.join(row.name))
    }

    /// Leaves out directories, and the other entries whose path is not meant.
    pub(crate) fn retain(&mut self, is_meant: impl Fn(&Path) -> bool) {
        for (path, directory) in &mut self.directories {
            let is_meant = |row: &Row<'_>| row.entry.kind != FileKind::Directory && is_meant(&path.join(row.name));
            let meant = Rows::new(&directory.rows).filter(is_meant);
            directory.rows = meant.flat_map(|row| row.bytes).copied().collect();
        }
    }
}

/// True for an entry of a directory that a walk leaves out.
pub(crate) type Exclude<'a> = dyn Fn(&Path, &OsStr) -> bool + Sync + 'a;

/// What is known of a tree before a walk.
#[derive(Default)]
pub(crate) struct Known<'k> {
    /// The rows of its directories.
    pub(super) rows: HashMap<&'k Path, &'k [u8]>,
    /// Their time. A file of which the times are older is certain to get another identity with a change.
    pub(super) time: i64,
    /// The tree before a run, if the walk is after it.
    pub(super) before: Option<&'k Tree>,
}

impl<'k> Known<'k> {
    /// Before a run that began at this time.
    pub(super) fn before(tree: &'k Tree, time: i64) -> Self {
        let rows = tree.directories.iter().map(|(path, directory)| (path.as_path(), directory.rows.as_slice()));
        Self { rows: rows.collect(), time, before: Some(tree) }
    }
}

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

    /// Walks one tree, one level after the other. The known contents of unchanged files are noted. After a run, the
    /// ignore rules from before it apply, because a run may change the patterns, and unchanged files are not listed.
    pub(super) fn tree(&self, root: &Path, known: &Known<'_>) -> Tree {
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
            let read = each(level, |(path, above)| (self.read(&path, &above, known), path));
            level = Vec::new();
            for (read, path) in read {
                let Ok((directory, within)) = read else {
                    tree.unseen.push(path);
                    continue;
                };
                for (path, id) in within {
                    if id.dev == device {
                        level.push((path, directory.ignored.clone().unwrap_or_default()));
                    } else {
                        tree.unseen.push(path);
                    }
                }
                tree.directories.insert(path, directory);
            }
        }
        tree
    }

    /// Reads a directory. Returns it with the directories in it that git does not ignore.
    fn read(&self, path: &Path, above: &Ignored, known: &Known<'_>) -> io::Result<(Directory, Vec<(PathBuf, FileId)>)> {
        let directory = nofollow::open_with(path, READ)?;
        let listing = listings::of(&directory)?;
        let ignored = known.before.and_then(|before| before.directories.get(path)?.ignored.clone());
        let within = || self.ignores.then(|| above.within(path, |name| listing.iter().any(|(other, _)| other == name)));
        let ignored = ignored.or_else(within).unwrap_or_default();
        let (mut outdated, mut directories, mut count) = (Vec::new(), Vec::new(), 0);
        let is_after = known.before.is_some();
        // Both are sorted by name.
        let known_rows = known.rows.get(path).copied().unwrap_or_default();
        let mut rows = Vec::with_capacity(if is_after { 0 } else { known_rows.len() });
        let mut known_rows = Rows::new(known_rows);
        for (name, _) in listing.iter() {
            if name == ".git" && self.ignores || (self.exclude)(path, name) {
                continue;
            }
            // Without one, the entry was removed in the meantime.
            let Ok((mut entry, target)) = entry_at(&directory, name) else { continue };
            count += 1;
            let mut same = None;
            while let Some(row) = known_rows.next_until(name) {
                outdated.push(row.place);
                same = Some(row).filter(|row| row.name == name);
            }
            let is_unchanged = |row: &Entry| row.kind == FileKind::File && row.id == entry.id;
            let unchanged = same.filter(|row| is_unchanged(&row.entry) && entry.id.is_settled(known.time));
            if is_after && unchanged.is_some() {
                outdated.pop();
                continue;
            }
            let same = same.filter(|row| is_after && row.entry.kind == entry.kind);
            let is_ignored = || ignored.contains(path, name, entry.kind == FileKind::Directory);
            entry.is_ignored = same.map_or_else(is_ignored, |row| row.entry.is_ignored);
            if entry.kind == FileKind::Directory && !entry.is_ignored {
                directories.push((path.join(name), entry.id));
            }
            if entry.kind == FileKind::Directory && !is_after {
                // The other members follow its entries.
                entry.id = FileId { dev: entry.id.dev, ino: entry.id.ino, ..FileId::default() };
            }
            match unchanged.filter(|row| row.entry.is_ignored == entry.is_ignored) {
                Some(row) => rows.extend_from_slice(row.bytes),
                None => entry.add_to(&mut rows, name, &target),
            }
        }
        outdated.extend(known_rows.map(|row| row.place));
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count))
            .map_err(|_| io::ErrorKind::QuotaExceeded)?;
        Ok((Directory { rows, outdated, ignored: Some(ignored) }, directories))
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// The directory of a root that is a file, with this entry only.
fn of_file(root: &Path) -> Option<(PathBuf, Directory)> {
    let mut rows = Vec::new();
    let (entry, target) = entry_of(root).ok()?;
    entry.add_to(&mut rows, root.file_name()?, &target);
    Some((root.parent()?.to_owned(), Directory { rows, ..Directory::default() }))
}

/// Opens a regular file for reading, unless its identity changed.
pub(super) fn open(path: &Path, id: &FileId) -> io::Result<std::fs::File> {
    let file = nofollow::open_file(path)?;
    if FileId::from(&file.metadata()?) == *id { Ok(file) } else { Err(io::Error::other("it changed")) }
}

/// The current state of a path; `None` if nothing exists there. A file that is too large or unreadable has no hash.
pub(crate) fn state_of(path: &Path) -> io::Result<Option<FileState>> {
    match entry_of(path) {
        Ok((entry, target)) => Ok(Some(state(&entry, &target, hash_of(path, &entry).ok()))),
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
