//! Placeholders for parts of a repository that git would read and that do not exist. They are created before a run,
//! so that they can be read-only, and removed after the last run in the repository.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags};

use super::{Repository, give_to_owner_of};
use crate::nofollow::{NewFile, is_random_name, names, open_directory};

/// The directory in the repository with the locks and the list of placeholders. It is hidden in a run.
pub(crate) const DIRECTORY: &str = "cp-keep";

/// A file or directory without effect on git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    File(&'static str),
    Directory,
}

/// Names the directory itself, in a form that every implementation of git follows.
pub(super) const ITSELF: &str = "./\n";

const PLACEHOLDERS: [Placeholder; 3] = [Placeholder::File(""), Placeholder::File(ITSELF), Placeholder::Directory];

/// True for the file with the directory that git reads instead. While it exists, some agents refuse to work in other
/// working trees of the repository, so it is not there for as long as an agent runs.
pub(super) fn is_common(path: &Path) -> bool {
    path.ends_with("commondir")
}

impl Placeholder {
    /// Creates the placeholder in a directory. False if the part exists. A part that the run creates is found after it.
    fn make(self, directory: &OwnedFd, name: &Path) -> io::Result<bool> {
        let made = match self {
            Self::Directory => {
                rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o755)).map_err(io::Error::from)
            }
            Self::File(text) => NewFile::make(directory.as_fd()).and_then(|mut new| {
                new.file.write_all(text.as_bytes())?;
                rustix::fs::fchmod(&new.file, Mode::from_raw_mode(0o644))?;
                new.place_new(name.as_os_str())
            }),
        };
        match made {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn is_at(self, path: &Path) -> bool {
        match self {
            Self::Directory => fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) && is_empty(path),
            Self::File(text) => super::read_small(path).is_some_and(|held| held == text),
        }
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// True if a placeholder may be needed: nothing exists at the path, or a placeholder of another run.
pub(super) fn may_be_made(path: &Path, placeholder: Placeholder) -> bool {
    path.symlink_metadata().is_err() || placeholder.is_at(path)
}

/// The placeholders of a repository. They exist as long as this value.
pub(super) struct Placeholders {
    keep: OwnedFd,
    repository: OwnedFd,
    /// True if the placeholders that an agent does not get are among them.
    pub has_common: bool,
    locks: Vec<OwnedFd>,
}

impl Placeholders {
    /// Creates missing placeholders.
    pub(super) fn make(repository: &Repository, is_lasting: bool) -> io::Result<Self> {
        let path = repository.path.join(DIRECTORY);
        match rustix::fs::mkdirat(CWD, &path, Mode::RWXU) {
            Ok(()) => give_to_owner_of(&repository.path, &path)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let directory = open_directory(CWD, &path)?;
        let opened = open_directory(CWD, &repository.path)?;
        let gate = lock(&directory, GATE, FlockOperation::LockExclusive)?;
        remove(&directory, &opened)?;
        let mut locks = vec![lock(&directory, USERS, FlockOperation::LockShared)?];
        let has_common = if is_lasting {
            locks.push(lock(&directory, AGENTS, FlockOperation::LockShared)?);
            false
        } else {
            lock(&directory, AGENTS, FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        if has_common {
            locks.push(lock(&directory, LINES, FlockOperation::LockShared)?);
        }
        let mut list = read_list(&directory)?;
        for (path, placeholder) in repository.absent.iter().filter(|(path, _)| has_common || !is_common(path)) {
            let relative = path.strip_prefix(&repository.path).unwrap_or(path);
            let Some((parent, name)) = open_parent(&opened, relative) else { continue };
            // The list names it before it exists, so that no kill leaves one that is not listed.
            if rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_err() && list.insert(relative.to_owned())
            {
                write_list(&directory, &list)?;
            }
            if placeholder.make(&parent, name)? {
                give_to_owner_of(&repository.path, path)?;
            }
        }
        drop(gate);
        Ok(Self { keep: directory, repository: opened, has_common, locks })
    }
}

/// The lock that is held while placeholders are created or removed.
const GATE: &str = "gate";
/// The lock that every run in the repository holds.
const USERS: &str = "users";
/// The lock that every agent in the repository holds.
const AGENTS: &str = "agents";
/// The lock of the runs that use the placeholders that an agent does not get.
const LINES: &str = "lines";
/// The paths of the placeholders in the repository, each with a NUL byte at its end.
const LIST: &str = "placeholders";

fn lock(directory: &OwnedFd, name: &str, operation: FlockOperation) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::flock(&file, operation)?;
    Ok(file)
}

/// Opens the directory of a path in a repository, without following links.
fn open_parent<'p>(repository: &OwnedFd, path: &'p Path) -> Option<(OwnedFd, &'p Path)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let parent = rustix::fs::openat2(repository, parent, flags, Mode::empty(), how).ok()?;
    Some((parent, Path::new(path.file_name()?)))
}

fn read_list(keep: &OwnedFd) -> io::Result<BTreeSet<PathBuf>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut listed = Vec::new();
    File::from(rustix::fs::openat(keep, LIST, flags, Mode::from_raw_mode(0o600))?).read_to_end(&mut listed)?;
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.to_owned()))).collect())
}

fn write_list(keep: &OwnedFd, paths: &BTreeSet<PathBuf>) -> io::Result<()> {
    let text: Vec<u8> = paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
    let mut new = NewFile::make(keep.as_fd())?;
    new.file.write_all(&text)?;
    new.place(LIST.as_ref())
}

/// Removes the listed placeholders that no run uses. The caller holds the gate.
fn remove(keep: &OwnedFd, repository: &OwnedFd) -> io::Result<()> {
    let is_free = |name| lock(keep, name, FlockOperation::NonBlockingLockExclusive).is_ok();
    let (all, common) = (is_free(USERS), is_free(LINES));
    // A killed supervisor may have left a new file without its final name.
    for name in if all { names(repository)? } else { Vec::new() } {
        if is_random_name(&name) {
            let _ = rustix::fs::unlinkat(repository, &name, AtFlags::empty());
        }
    }
    let mut list = read_list(keep)?;
    let before = list.len();
    list.retain(|path| {
        if !(all || common && is_common(path)) {
            return true;
        }
        if let Some((parent, name)) = open_parent(repository, path) {
            let open = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&parent).to_string()).join(name);
            if let Some(placeholder) = PLACEHOLDERS.iter().find(|placeholder| placeholder.is_at(&open)) {
                let flags = if *placeholder == Placeholder::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let _ = rustix::fs::unlinkat(&parent, name, flags);
            }
        }
        false
    });
    if list.len() == before { Ok(()) } else { write_list(keep, &list) }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        self.locks.clear();
        // A placeholder that remains has no effect on git, and the next run removes it.
        let _ = lock(&self.keep, GATE, FlockOperation::LockExclusive)
            .and_then(|_gate| remove(&self.keep, &self.repository));
    }
}
