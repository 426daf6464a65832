//! The state of one path, in the form of records.

use std::fs::File;
use std::io;
use std::path::Path;

use cp_common::wire::{FileKind, FileState};
use cp_ledger::format::line::Hash;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::store::LARGEST;
use super::tree::{self, Entry};
use crate::nofollow;

/// The current state of a path; `None` if nothing exists there. A file that is too large or unreadable has no hash.
pub(crate) fn state_of(path: &Path) -> io::Result<Option<FileState>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let entry =
        nofollow::open_with(parent, OFlags::PATH | OFlags::DIRECTORY).and_then(|parent| Entry::at(&parent, name));
    match entry {
        Ok(entry) => Ok(Some(entry.state(hash_of(path, &entry).ok()))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

impl Entry {
    pub(super) fn state(&self, hash: Option<Hash>) -> FileState {
        FileState {
            kind: self.kind,
            permissions: format!("{:o}", self.mode),
            sha256: hash.map(|hash| hash.to_string()),
            target: self.target.as_ref().and_then(|target| target.to_str()).map(str::to_owned),
        }
    }
}

/// The hash of the content of a file of the walk.
pub(super) fn hash_of(path: &Path, entry: &Entry) -> io::Result<Hash> {
    if entry.kind != FileKind::File || entry.stamp.size > LARGEST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = tree::open(path, &entry.stamp)?;
    read_hash(&mut file)
}

fn read_hash(file: &mut File) -> io::Result<Hash> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(file, &mut bytes)?;
    Ok(Hash::of(&bytes))
}
