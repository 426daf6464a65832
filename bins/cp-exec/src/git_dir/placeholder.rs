//! Placeholders for parts of a repository that git would read and that do not exist. They are created before a run,
//! so that they can be read-only, and removed after the last run in the repository.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::Repository;
use super::keep::{KeepDirectory, KeptHistory};

/// A file or directory without effect on git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    File(&'static str),
    Directory,
}

const PLACEHOLDERS: [Placeholder; 3] = [Placeholder::File(""), Placeholder::File(".\n"), Placeholder::Directory];

impl Placeholder {
    fn make(self, path: &Path) -> io::Result<bool> {
        let made = match self {
            Self::Directory => fs::create_dir(path),
            Self::File(text) => File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes())),
        };
        match made {
            Ok(()) => Ok(true),
            // The part exists now, or its directory does not. A part that the run creates is found after the run.
            Err(e) if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => Ok(false),
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
    users: OwnedFd,
}

impl Placeholders {
    /// Creates missing placeholders, and keeps new history while no other run can start.
    pub(super) fn make(
        repository: &Repository,
        keep: &KeepDirectory<'_>,
    ) -> io::Result<(Self, io::Result<KeptHistory>)> {
        let directory = keep.open()?;
        let gate = lock(&directory, GATE, FlockOperation::LockExclusive)?;
        let mut made = Vec::new();
        for (path, placeholder) in &repository.absent {
            if placeholder.make(path)? {
                keep.give_to_owner(path)?;
                made.extend([path.as_os_str().as_bytes(), b"\0"].concat());
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut list = File::from(rustix::fs::openat(&directory, LIST, flags, Mode::from_raw_mode(0o600))?);
        list.write_all(&made)?;
        let users = lock(&directory, USERS, FlockOperation::LockShared)?;
        let kept = keep.update();
        drop(gate);
        Ok((Self { keep: directory, users }, kept))
    }
}

/// The lock that is held while placeholders are created or removed.
const GATE: &str = "gate";
/// The lock that every run in the repository holds.
const USERS: &str = "users";
/// The paths of the placeholders that were created, each with a NUL byte at its end.
const LIST: &str = "placeholders";

fn lock(directory: &OwnedFd, name: &str, operation: FlockOperation) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::flock(&file, operation)?;
    Ok(file)
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        let remove_all = || -> io::Result<()> {
            let _gate = lock(&self.keep, GATE, FlockOperation::LockExclusive)?;
            rustix::fs::flock(&self.users, FlockOperation::Unlock)?;
            if rustix::fs::flock(&self.users, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Ok(());
            }
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut list = File::from(rustix::fs::openat(&self.keep, LIST, flags, Mode::empty())?);
            let mut made = Vec::new();
            io::Read::read_to_end(&mut list, &mut made)?;
            for path in made.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
                let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_owned()));
                match PLACEHOLDERS.iter().find(|placeholder| placeholder.is_at(&path)) {
                    Some(Placeholder::Directory) => fs::remove_dir(&path)?,
                    Some(Placeholder::File(_)) => fs::remove_file(&path)?,
                    None => {}
                }
            }
            list.set_len(0)
        };
        // A placeholder that remains is empty, and the next run removes it.
        drop(remove_all());
    }
}
