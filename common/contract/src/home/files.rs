//! Creation of directories and files: private, and atomic.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::signals;
use crate::wire::{Code, Error, Result};

/// Creates a directory and its parents with mode 0700.
pub fn make_directory(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| {
        Error::io("creating the directory", e).in_file(path).hint("give --home a directory that can be written").fatal()
    })
}

/// Writes a file atomically with mode 0600. It is durable when this returns.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let directory = directory_of(path)?;
    let _effect = signals::effect();
    let written = staged(directory, bytes)
        .and_then(|file| Ok(file.persist(path).map(drop)?))
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|e| Error::io("writing", e).in_file(path))
}

/// Like [`write_whole`], but returns false and keeps the existing file if there is one.
pub fn create_whole(path: &Path, bytes: &[u8]) -> Result<bool> {
    let directory = directory_of(path)?;
    let _effect = signals::effect();
    let created = staged(directory, bytes).and_then(|file| match file.persist_noclobber(path) {
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        persisted => {
            persisted.map_err(std::io::Error::from).and_then(|_| File::open(directory)?.sync_all()).map(|()| true)
        }
    });
    created.map_err(|e| Error::io("creating", e).in_file(path))
}

fn directory_of(path: &Path) -> Result<&Path> {
    let directory = path.parent().ok_or_else(|| Error::new(Code::Io, "not a file name").in_file(path))?;
    make_directory(directory)?;
    Ok(directory)
}

/// Writes a temporary file, which is removed unless it is persisted.
fn staged(directory: &Path, bytes: &[u8]) -> std::io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix_in(".cp-", directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn write_whole_replaces_file_privately_without_leftovers() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/er/file");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn create_whole_keeps_existing_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        assert!(create_whole(&path, b"first").unwrap());
        assert!(!create_whole(&path, b"second").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
