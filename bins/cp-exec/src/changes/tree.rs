//! The walk through writable trees. Links are not followed; `.git`, other file systems and ignored directories are
//! not entered.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use cp_common::wire::FileKind;
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, Stat};
use rustix::io::Errno;

use super::ignored::Ignored;
use super::store::Stamp;
use crate::nofollow;

/// An entry of the walk.
pub(super) struct Entry {
    pub kind: FileKind,
    pub stamp: Stamp,
    pub mode: u32,
    /// The target of a link.
    pub target: Option<OsString>,
    /// True if git ignores the entry.
    pub is_ignored: bool,
}

impl Entry {
    /// The entry with this name in a directory.
    pub(super) fn at(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<Self> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut entry = Self::of(&stat);
        if entry.kind == FileKind::Link {
            let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
            entry.target = Some(OsString::from_vec(target.into_bytes()));
        }
        Ok(entry)
    }

    fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        };
        Self { kind, stamp: Stamp::of(stat), mode: stat.st_mode & 0o7777, target: None, is_ignored: false }
    }
}

/// The entries of some trees.
#[derive(Default)]
pub(super) struct Tree {
    /// Entries by path in byte order, so a directory comes before its content.
    pub entries: BTreeMap<OsString, Entry>,
    /// The ignore rules of each directory.
    ignored: HashMap<PathBuf, Ignored>,
    /// Directories that were not entered, although a run may have changed something in them.
    pub unseen: Vec<PathBuf>,
}

impl Tree {
    /// Walks some trees, up to `most` entries. If `before` is given, its ignore rules apply, because a run may change
    /// the patterns.
    pub(super) fn of(trees: &[PathBuf], exclude: &dyn Fn(&Path) -> bool, most: u64, before: Option<&Self>) -> Self {
        let mut walk = Walk { exclude, left: most, before, tree: Self::default(), waiting: Vec::new() };
        for root in trees {
            walk.root(root);
        }
        walk.tree
    }
}

struct Walk<'a> {
    exclude: &'a dyn Fn(&Path) -> bool,
    left: u64,
    before: Option<&'a Tree>,
    tree: Tree,
    /// Directories that are still to be read, with the ignore rules of the directories above them.
    waiting: Vec<(PathBuf, Ignored)>,
}

impl Walk<'_> {
    fn root(&mut self, root: &Path) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let device = match nofollow::open_with(root, flags) {
            Ok(directory) => nofollow::node(&directory).map_or(0, |(device, _)| device),
            Err(Errno::NOTDIR) => return self.file(root),
            Err(Errno::NOENT) => return,
            Err(_) => return self.tree.unseen.push(root.to_owned()),
        };
        self.waiting.push((root.to_owned(), Ignored::above(root)));
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        while let Some((path, above)) = self.waiting.pop() {
            let read = nofollow::open_with(&path, flags)
                .map_err(io::Error::from)
                .and_then(|directory| self.read(&path, &directory, &above, device, &mut buffer));
            if read.is_err() {
                self.tree.unseen.push(path);
            }
        }
    }

    /// Adds a root that is a file.
    fn file(&mut self, root: &Path) {
        if let (Some(parent), Some(name)) = (root.parent(), root.file_name())
            && let Ok(parent) = nofollow::open_with(parent, OFlags::PATH | OFlags::DIRECTORY)
            && let Ok(entry) = Entry::at(&parent, name)
        {
            self.tree.entries.insert(root.as_os_str().to_owned(), entry);
        }
    }

    fn read(
        &mut self,
        path: &Path,
        directory: &OwnedFd,
        above: &Ignored,
        device: u64,
        buffer: &mut [MaybeUninit<u8>],
    ) -> io::Result<()> {
        let known = self.before.and_then(|before| before.ignored.get(path));
        let ignored = known.cloned().unwrap_or_else(|| above.within(path));
        let mut entries = RawDir::new(directory, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || name == ".git" {
                continue;
            }
            let below = path.join(name);
            if (self.exclude)(&below) {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::QuotaExceeded)?;
            // The entry was removed in the meantime.
            let Ok(mut entry) = Entry::at(directory, name) else { continue };
            let is_directory = entry.kind == FileKind::Directory;
            entry.is_ignored = ignored.contains(&below, is_directory);
            if is_directory && !entry.is_ignored {
                if entry.stamp.dev == device {
                    self.waiting.push((below.clone(), ignored.clone()));
                } else {
                    self.tree.unseen.push(below.clone());
                }
            }
            self.tree.entries.insert(below.into_os_string(), entry);
        }
        self.tree.ignored.insert(path.to_owned(), ignored);
        Ok(())
    }
}

/// Opens a regular file for reading, unless its identity changed.
pub(super) fn open(path: &Path, stamp: &Stamp) -> io::Result<std::fs::File> {
    let file = nofollow::open_with(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
    if Stamp::of(&rustix::fs::fstat(&file)?) == *stamp { Ok(file.into()) } else { Err(io::Error::other("it changed")) }
}
