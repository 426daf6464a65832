//! The walk through writable trees. Links are not followed; `.git`, other file systems and entries that git ignores are
//! not entered.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::exec_result::{FileKind, FileState};
use cp_ledger::format::line::Hash;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, Stat};
use rustix::io::Errno;

use crate::digest;
use crate::file_id::FileId;
use crate::nofollow;

/// The largest file of a working tree that is kept and hashed.
pub(super) const LARGEST: u64 = 16 << 20;

/// An entry of the walk.
pub(super) struct Entry {
    pub kind: FileKind,
    pub id: FileId,
    pub mode: u32,
    /// The target of a link.
    pub target: Option<OsString>,
    /// True if git ignores the entry.
    pub is_ignored: bool,
}

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
        FileState {
            kind: self.kind,
            permissions: format!("{:o}", self.mode),
            sha256: hash.map(|hash| hash.to_string()),
            target: self.target.as_ref().and_then(|target| target.to_str()).map(str::to_owned),
        }
    }

    fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        };
        Self { kind, id: FileId::from(stat), mode: stat.st_mode & 0o7777, target: None, is_ignored: false }
    }
}

/// The entries of some trees.
#[derive(Default)]
pub(crate) struct Tree {
    /// Entries by path in byte order, so a directory comes before its content.
    pub(super) entries: BTreeMap<OsString, Entry>,
    /// The ignore rules of each directory.
    ignored: HashMap<PathBuf, Ignored>,
    /// Directories that were not entered, although a run may have changed something in them.
    pub(super) unseen: Vec<PathBuf>,
}

impl Tree {
    /// Walks some trees, up to `most` entries. If `before` is given, its ignore rules apply, because a run may change
    /// the patterns.
    pub(super) fn of(trees: &[PathBuf], exclude: &dyn Fn(&Path) -> bool, most: u64, before: Option<&Self>) -> Self {
        let (tree, waiting) = (Self::default(), Vec::new());
        let mut walk = Walk { exclude, left: most, ignores: true, before, tree, waiting };
        for root in trees {
            walk.root(root);
        }
        walk.tree
    }

    /// Walks a repository, where no pattern holds.
    pub(crate) fn of_git(repository: &Path, exclude: &dyn Fn(&Path) -> bool) -> Self {
        let (tree, waiting) = (Self::default(), Vec::new());
        let mut walk = Walk { exclude, left: u64::MAX, ignores: false, before: None, tree, waiting };
        walk.root(repository);
        walk.tree
    }

    /// The paths of the entries of some kinds.
    pub(crate) fn paths_of(&self, kinds: &[FileKind]) -> impl Iterator<Item = PathBuf> {
        self.entries.iter().filter(|(_, entry)| kinds.contains(&entry.kind)).map(|(path, _)| path.into())
    }

    /// Leaves out the entries whose path is not meant.
    pub(crate) fn retain(&mut self, is_meant: impl Fn(&Path) -> bool) {
        self.entries.retain(|path, _| is_meant(Path::new(path)));
    }
}

struct Walk<'a> {
    exclude: &'a dyn Fn(&Path) -> bool,
    left: u64,
    /// True if patterns of ignored names hold.
    ignores: bool,
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
        let above = if self.ignores { Ignored::above(root) } else { Ignored::default() };
        self.waiting.push((root.to_owned(), above));
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
        if let Ok(entry) = Entry::of_path(root) {
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
        let ignored = known.cloned().or_else(|| self.ignores.then(|| above.within(path))).unwrap_or_default();
        let mut entries = RawDir::new(directory, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || name == ".git" && self.ignores {
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
                if entry.id.dev == device {
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
pub(super) fn open(path: &Path, id: &FileId) -> io::Result<std::fs::File> {
    let file = nofollow::open_with(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
    if FileId::from(&rustix::fs::fstat(&file)?) == *id { Ok(file.into()) } else { Err(io::Error::other("it changed")) }
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
pub(crate) struct Ignored(Option<Arc<Level>>);

struct Level {
    patterns: Gitignore,
    above: Ignored,
}

impl Ignored {
    /// The patterns that the directories above, in the same repository, define for a directory.
    pub(crate) fn above(directory: &Path) -> Self {
        let is_repository = |directory: &Path| directory.join(".git").symlink_metadata().is_ok();
        if is_repository(directory) || !directory.ancestors().any(is_repository) {
            return Self::default();
        }
        directory.parent().map_or_else(Self::default, |parent| Self::above(parent).within(parent))
    }

    /// The patterns for a directory, including its own.
    pub(crate) fn within(&self, directory: &Path) -> Self {
        let of_repository = directory.join(".git");
        let is_repository = of_repository.symlink_metadata().is_ok();
        let above = if is_repository { Self::default() } else { self.clone() };
        let mut builder = GitignoreBuilder::new(directory);
        let mut is_empty = true;
        for file in [of_repository.join("info/exclude"), directory.join(".gitignore")] {
            let is_short = file.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST);
            for line in
                is_short.then(|| fs::read(&file).ok()).flatten().unwrap_or_default().split(|byte| *byte == b'\n')
            {
                // Git also ignores invalid patterns.
                is_empty &= builder.add_line(None, &String::from_utf8_lossy(line)).is_err() || line.is_empty();
            }
        }
        match builder.build() {
            Ok(patterns) if !is_empty => Self(Some(Arc::new(Level { patterns, above }))),
            _ => above,
        }
    }

    /// True if git ignores an entry of the directory.
    pub(crate) fn contains(&self, path: &Path, is_directory: bool) -> bool {
        let mut level = &self.0;
        while let Some(Level { patterns, above }) = level.as_deref() {
            match patterns.matched(path, is_directory) {
                Match::None => level = &above.0,
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}
