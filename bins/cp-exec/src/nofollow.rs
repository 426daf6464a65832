//! Path operations that do not follow symbolic links. A command can replace any part of a path that it may write by a
//! link, so a path is opened without following links after it was checked. A path of the policy is resolved once, and
//! the links on it are recorded.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::iter;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Component, Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::serde_paths::path_bytes;

/// The most links that one path may have, as in the kernel.
const LINKS: usize = 40;

/// A symbolic link: its path and its target.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    #[serde(with = "path_bytes")]
    pub at: PathBuf,
    #[serde(with = "path_bytes")]
    pub to: PathBuf,
}

/// Device and inode, which identify a file or directory.
pub(crate) type Node = (u64, u64);

/// Opens a path without links as an `O_PATH` descriptor. `None` if nothing exists at the path, or if this user has no
/// access to it. A link on the path is `ELOOP`.
pub(crate) fn open(path: &Path) -> io::Result<Option<OwnedFd>> {
    match open_with(path, OFlags::PATH) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Opens an absolute path without links, with these flags.
pub(crate) fn open_with(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), how)
}

/// Opens the directory of a path without links. Returns it with the last name of the path.
pub(crate) fn open_parent(path: &Path) -> rustix::io::Result<(OwnedFd, &OsStr)> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
    Ok((open_with(parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
}

/// The owner of a directory, if files in it would get another, because this process is root.
pub(crate) fn owner_in(directory: &OwnedFd) -> io::Result<Option<(u32, u32)>> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((rustix::process::geteuid().as_raw() != stat.st_uid).then_some((stat.st_uid, stat.st_gid)))
}

/// Creates a directory with the owner of the one around it.
pub(crate) fn make_directory_in(around: &OwnedFd, name: impl AsRef<OsStr>, permissions: u32) -> io::Result<()> {
    let name = name.as_ref();
    rustix::fs::mkdirat(around, name, Mode::from_raw_mode(permissions))?;
    if let Some((user, group)) = owner_in(around)? {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::chownat(around, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Writes a file atomically, with the owner of its directory.
pub(crate) fn put_back(path: &Path, bytes: &[u8], permissions: u32) -> io::Result<()> {
    let (directory, name) = open_parent(path)?;
    NewFile::filled(directory.as_fd(), bytes, owner_in(&directory)?, permissions)?.place(name)
}

/// Creates a directory. Fails if its parent is reached through a link.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    let (parent, name) = open_parent(path)?;
    Ok(rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?)
}

/// The device and inode of an open file.
pub(crate) fn node(file: &OwnedFd) -> io::Result<Node> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The first symbolic link on a path.
pub(crate) fn first_link(path: &Path) -> Option<PathBuf> {
    follow(path).1.into_iter().next().map(|link| link.at)
}

/// Resolves an absolute path as far as it exists. Returns the resolved path and the links on it.
pub(crate) fn follow(path: &Path) -> (PathBuf, Vec<Link>) {
    // Most paths have no link, which the kernel says at once.
    if !path.iter().any(|part| part == "..") && open_with(path, OFlags::PATH).is_ok() {
        return (path.components().collect(), Vec::new());
    }
    let (mut real, mut links) = (PathBuf::new(), Vec::new());
    // Components that are still to be resolved, the next one last. A root component restarts at `/`.
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(&part);
        if links.len() < LINKS
            && let Ok(to) = fs::read_link(&real)
        {
            rest.extend(parts(&to));
            links.push(Link { at: real.clone(), to });
            real.pop();
        }
    }
    (real, links)
}

fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
    parts.rev().map(|part| OsStr::to_owned(part.as_os_str())).collect()
}

/// Opens a directory for reading, unless it is a link.
pub(crate) fn open_directory(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// Opens a regular file for reading without links. Does not wait for the writer of a pipe.
pub(crate) fn open_file(path: &Path) -> rustix::io::Result<File> {
    open_with(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).map(File::from)
}

/// Passes each name in a directory with its type to `each`. A directory that was removed has no entries.
pub(crate) fn entries(directory: impl AsFd, mut each: impl FnMut(&CStr, FileType)) -> rustix::io::Result<()> {
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        each(
            name,
            match entry.file_type() {
                // Some file systems do not return the type with the name.
                FileType::Unknown => rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            },
        );
    }
    Ok(())
}

/// The names in a directory.
pub(crate) fn names(directory: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    entries(directory, |name, _| names.push(OsStr::from_bytes(name.to_bytes()).to_owned()))?;
    Ok(names)
}

/// The fewest items for which a thread is worth its start. An item is a directory, or a file that is copied.
const FEWEST: usize = 16;

/// Does the same with each item, on all processors. The results are in the order of the items.
pub(crate) fn each<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    // To count the processors takes several files of the kernel.
    static PROCESSORS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
    let threads = (*PROCESSORS).min(items.len() / FEWEST);
    // Some items take longer than others, so each thread takes a few at a time.
    let items = Mutex::new(items.into_iter().enumerate());
    let next = || {
        let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
        Some(items.by_ref().take(FEWEST).collect::<Vec<_>>()).filter(|part| !part.is_empty())
    };
    let work_all = || iter::from_fn(next).flatten().map(|(place, item)| (place, work(item))).collect::<Vec<_>>();
    let mut results = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work_all)).collect();
        let mut results = work_all();
        for other in others {
            results.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        results
    });
    results.sort_unstable_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A name that no other process can foresee.
pub(crate) fn random_name() -> io::Result<String> {
    let drawn = cp_common::keys::random::<8>().map_err(|e| io::Error::other(e.message().to_owned()))?;
    Ok(format!("{PREFIX}{:016x}", u64::from_ne_bytes(drawn)))
}

/// True for a name that [`random_name`] could have made.
pub(crate) fn is_random_name(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

const PREFIX: &str = ".cp-exec-";

/// A new file in a directory that a command may be able to write: under a random name, so that a command cannot put a
/// link or a file there first. It is removed unless it gets its final name.
pub(crate) struct NewFile<'d> {
    directory: BorrowedFd<'d>,
    pub name: String,
    pub file: File,
    is_placed: bool,
}

impl<'d> NewFile<'d> {
    pub(crate) fn make(directory: BorrowedFd<'d>) -> io::Result<Self> {
        let name = random_name()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &name, flags, Mode::from_raw_mode(0o600))?;
        Ok(Self { directory, name, file: file.into(), is_placed: false })
    }

    /// Makes a file with its content, its permissions, and an owner if it is another than this process gives it.
    pub(crate) fn filled(
        directory: BorrowedFd<'d>,
        bytes: &[u8],
        owner: Option<(u32, u32)>,
        permissions: u32,
    ) -> io::Result<Self> {
        let mut new = Self::make(directory)?;
        let meta = new.file.metadata()?;
        if let Some((user, group)) = owner.filter(|owner| *owner != (meta.uid(), meta.gid())) {
            std::os::unix::fs::fchown(&new.file, Some(user), Some(group))?;
        }
        rustix::fs::fchmod(&new.file, Mode::from_raw_mode(permissions))?;
        new.file.write_all(bytes)?;
        Ok(new)
    }

    /// Gives the file its final name, and replaces a file that has it.
    pub(crate) fn place(mut self, name: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(self.directory, &self.name, self.directory, name)?;
        self.is_placed = true;
        Ok(())
    }

    /// Gives the file its final name, unless something has it.
    pub(crate) fn place_new(self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(self.directory, &self.name, self.directory, name, AtFlags::empty())?)
    }

    /// Exchanges the file with the one that has a name. That one is removed in the end.
    pub(crate) fn exchange(&self, name: &OsStr) -> io::Result<()> {
        let flags = RenameFlags::EXCHANGE;
        Ok(rustix::fs::renameat_with(self.directory, &self.name, self.directory, name, flags)?)
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// The seconds after which a new file without its final name belongs to no process that writes it.
const ABANDONED: i64 = 60;

/// Removes the new files that killed processes left in a directory without their final names.
pub(crate) fn remove_abandoned(directory: &Path) {
    let Ok(directory) = open_with(directory, OFlags::RDONLY | OFlags::DIRECTORY) else { return };
    let now = i64::try_from(cp_common::clock::unix_seconds()).unwrap_or(0);
    for name in names(&directory).unwrap_or_default().iter().filter(|name| is_random_name(name)) {
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| stat.st_mtime.saturating_add(ABANDONED) < now) {
            // A file that cannot be removed now is removed the next time.
            let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
        }
    }
}

/// Copies a file atomically: the target appears complete or not at all.
pub(crate) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::openat(from, name, flags, Mode::empty())?);
    let mut target = NewFile::make(to)?;
    io::copy(&mut source, &mut target.file)?;
    rustix::fs::fchmod(&target.file, Mode::from_raw_mode(mode & 0o666))?;
    target.place(name)
}

/// Removes an entry and everything below it.
pub(crate) fn remove(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => {
            let around = Path::new("/proc/self/fd").join(at.as_raw_fd().to_string());
            fs::remove_dir_all(around.join(name))
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follow_lists_links_and_open_refuses_them() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/deep")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("link/deep"), root.join("again")).unwrap();
        let (real, links) = follow(&root.join("again/../deep/missing"));
        assert_eq!(real, root.join("real/deep/missing"));
        assert_eq!(
            links.iter().map(|link| link.at.clone()).collect::<Vec<_>>(),
            [root.join("again"), root.join("link")]
        );
        assert!(open(&root.join("real/deep")).unwrap().is_some());
        assert!(open(&root.join("real/missing")).unwrap().is_none());
        for path in ["link", "link/deep", "again"] {
            let error = open(&root.join(path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{path}");
        }
        let (one, other) = (open(&root.join("real/deep")), open_with(&root.join("real/deep"), OFlags::RDONLY));
        assert_eq!(node(&one.unwrap().unwrap()).unwrap(), node(&other.unwrap()).unwrap());
        assert_eq!(first_link(&root.join("link/deep")), Some(root.join("link")));
    }
}
