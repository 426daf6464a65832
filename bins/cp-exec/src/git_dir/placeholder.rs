//! Placeholders for parts of a repository that git would read and that do not exist. They are created before a run,
//! so that they can be read-only, and removed after the last run in the repository. The time of its last change marks
//! a placeholder, so that no kill leaves one that is not known.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps};

use super::{Placeholder, Repository};
use crate::nofollow::{
    NewFile, is_random_name, make_directory_in, names, open_directory, owner_in, random_name, remove,
};

/// The directory in the repository with the locks. It is hidden in a run.
pub(crate) const DIRECTORY: &str = "cp-keep";

/// The lock that is held while placeholders are created or removed.
const GATE: &str = "gate";
/// The lock of the runs with a placeholder for `commondir`, and that of the others.
const WITH_COMMON: &str = "with";
const WITHOUT_COMMON: &str = "without";

/// Names the directory itself, in a form that every implementation of git follows.
const ITSELF: &str = "./\n";

/// The last change of a placeholder, in seconds.
const MARK: i64 = 1;

/// True for the file with the directory that git reads instead. While it exists, some agents refuse to work in other
/// working trees of the repository, so it is not there for as long as an agent runs.
fn is_common(path: &Path) -> bool {
    path.ends_with("commondir")
}

/// True if nothing exists at a path, or a placeholder.
pub(super) fn is_free(path: &Path) -> bool {
    let Ok(meta) = path.symlink_metadata() else { return true };
    let has_no_effect = || {
        if meta.is_dir() {
            fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
        } else {
            super::read_small(path).is_some_and(|text| text.is_empty() || text == ITSELF)
        }
    };
    meta.mtime() == MARK && has_no_effect()
}

fn accept_existing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// The placeholders of a repository. They exist as long as this value.
pub(super) struct Placeholders {
    keep: OwnedFd,
    repository: OwnedFd,
    /// The paths in the repository.
    paths: Vec<PathBuf>,
    /// The paths that have no placeholder of this run.
    pub unused: Vec<PathBuf>,
    held: Option<OwnedFd>,
}

impl Placeholders {
    /// Creates missing placeholders. `is_lasting`: for an agent.
    pub(super) fn make(repository: &Repository, is_lasting: bool) -> io::Result<Self> {
        let opened = open_directory(CWD, &repository.path)?;
        make_directory_in(&opened, DIRECTORY, 0o700).or_else(accept_existing)?;
        let relative = |path: &PathBuf| path.strip_prefix(&repository.path).unwrap_or(path).to_owned();
        let paths = repository.absent.iter().map(|(path, _)| relative(path)).collect();
        let keep = open_directory(opened.as_fd(), Path::new(DIRECTORY))?;
        let mut made = Self { keep, repository: opened, paths, unused: Vec::new(), held: None };
        let _gate = made.lock(GATE, FlockOperation::LockExclusive)?;
        made.remove()?;
        let has_common = !is_lasting && made.is_unused(WITHOUT_COMMON);
        let lock = if has_common { WITH_COMMON } else { WITHOUT_COMMON };
        made.held = Some(made.lock(lock, FlockOperation::LockShared)?);
        for (path, placeholder) in &repository.absent {
            if is_common(path) && !has_common {
                made.unused.push(path.clone());
            } else {
                made.create(&relative(path), *placeholder).or_else(accept_existing)?;
            }
        }
        Ok(made)
    }

    fn lock(&self, name: &str, operation: FlockOperation) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.keep, name, flags, Mode::from_raw_mode(0o600))?;
        rustix::fs::flock(&file, operation)?;
        Ok(file)
    }

    fn is_unused(&self, lock: &str) -> bool {
        self.lock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Opens the directory of a path in the repository, without following links.
    fn parent<'p>(&self, path: &'p Path) -> Option<(OwnedFd, &'p OsStr)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Some((rustix::fs::openat2(&self.repository, parent, flags, Mode::empty(), how).ok()?, path.file_name()?))
    }

    /// Creates one, unless it has no directory. A part that the run creates is found after it.
    fn create(&self, path: &Path, placeholder: Placeholder) -> io::Result<()> {
        let Some((parent, name)) = self.parent(path) else { return Ok(()) };
        let mark = Timespec { tv_sec: MARK, tv_nsec: 0 };
        let times = Timestamps { last_access: mark, last_modification: mark };
        if placeholder == Placeholder::Directory {
            let new = random_name()?;
            make_directory_in(&parent, &new, 0o755)?;
            return rustix::fs::utimensat(&parent, &new, &times, AtFlags::SYMLINK_NOFOLLOW)
                .and_then(|()| rustix::fs::renameat_with(&parent, &new, &parent, name, RenameFlags::NOREPLACE))
                .inspect_err(|_| _ = rustix::fs::unlinkat(&parent, &new, AtFlags::REMOVEDIR))
                .map_err(io::Error::from);
        }
        let text = if is_common(path) { ITSELF } else { "" };
        let new = NewFile::filled(parent.as_fd(), text.as_bytes(), owner_in(&parent)?, 0o644)?;
        rustix::fs::futimens(&new.file, &times)?;
        new.place_new(name)
    }

    /// Removes the placeholders that no run uses. The caller holds the gate.
    fn remove(&self) -> io::Result<()> {
        let common = self.is_unused(WITH_COMMON);
        let all = common && self.is_unused(WITHOUT_COMMON);
        // A killed supervisor may have left a new file without its final name.
        for name in if all { names(&self.repository)? } else { Vec::new() } {
            if is_random_name(&name) {
                let _ = remove(self.repository.as_fd(), &name);
            }
        }
        for path in self.paths.iter().filter(|path| all || common && is_common(path)) {
            let Some((parent, name)) = self.parent(path) else { continue };
            let place = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string()).join(name);
            if is_free(&place) {
                let _ = rustix::fs::unlinkat(&parent, name, AtFlags::empty())
                    .or_else(|_| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR));
            }
        }
        Ok(())
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        self.held = None;
        // A placeholder that remains has no effect on git, and the next run removes it.
        let _ = self.lock(GATE, FlockOperation::LockExclusive).and_then(|_gate| self.remove());
    }
}
