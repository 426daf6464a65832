//! What is kept of a repository before a run, so that its history can be brought back: in a directory of the repository that is covered
//! inside the run.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode};

use super::{Repository, give_to_owner_of};
use crate::place::open_directory;

/// Its name in the repository.
pub(crate) const DIRECTORY: &str = "cp-keep";

/// The directory of one repository in which things are kept.
pub(super) struct Keep {
    repository: PathBuf,
    path: PathBuf,
}

impl Keep {
    pub(super) fn of(repository: &Repository) -> Self {
        Self { repository: repository.path.clone(), path: repository.path.join(DIRECTORY) }
    }

    /// Opens the directory, which is made where it is missing.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        match rustix::fs::mkdirat(CWD, &self.path, Mode::RWXU) {
            Ok(()) => self.give_to_owner(&self.path)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        open_directory(CWD, &self.path)
    }

    /// Gives what was made to the owner of the repository.
    pub(super) fn give_to_owner(&self, made: &Path) -> io::Result<()> {
        give_to_owner_of(&self.repository, made)
    }
}
