//! A file that several processes append to: the lock, one write that is whole or undone, and names that are durable.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cp_common::home::lock;
use cp_common::{Code, Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

/// The action if the file is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Create it with mode 0600, and the directories above it.
    CreateAll,
    /// Fail, because it was deleted on purpose.
    Fail,
}

/// A file that is open for reading and appending.
#[derive(Debug)]
pub(crate) struct Shared {
    path: PathBuf,
    file: File,
    absent: Absent,
}

/// The file that the lock was taken on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The file's number.
    pub(crate) inode: u64,
    /// Its size.
    pub(crate) size: u64,
    /// True if the name had got another file since the last look.
    pub(crate) replaced: bool,
}

impl Shared {
    /// Opens a regular file. A missing one is made, with its directories, if `absent` says so.
    pub(crate) fn open(path: &Path, absent: Absent) -> Result<Self> {
        let opened = match open(path, absent) {
            Err(e) if e.kind() == ErrorKind::NotFound && absent == Absent::CreateAll => {
                let made = path.parent().map(|parent| DirBuilder::new().recursive(true).mode(0o700).create(parent));
                made.transpose().and_then(|_| open(path, absent))
            }
            opened => opened,
        };
        Ok(Self { path: path.to_owned(), file: regular(path, opened, absent)?, absent })
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Takes the lock on the file that has the name now.
    pub(crate) fn lock(&mut self) -> Result<Held> {
        let mut replaced = false;
        loop {
            lock(&self.file).map_err(|e| e.in_file(&self.path).fatal())?;
            let failed = |e| Error::io("cannot read its metadata", e).in_file(&self.path).fatal();
            let ours = self.file.metadata().map_err(failed)?;
            match std::fs::metadata(&self.path) {
                Ok(named) if (named.ino(), named.dev()) == (ours.ino(), ours.dev()) => {
                    return Ok(Held { inode: ours.ino(), size: ours.len(), replaced });
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(failed(e)),
            }
            // Replaced while we waited: the lock we have is on a file that is over. Its directory is not made again: a
            // session that was deleted stays deleted.
            self.file = match open(&self.path, self.absent) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    return Err(Error::not_found("it was deleted while it was open").in_file(&self.path).fatal());
                }
                opened => regular(&self.path, opened, self.absent)?,
            };
            replaced = true;
        }
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&self) {
        // A file system on a network can fail. A lock that stayed would block other writers until this process ends.
        if flock(&self.file, FlockOperation::Unlock).is_err() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }

    /// Appends in one write, whole or not at all. The lock is held, and the file has `size` bytes.
    pub(crate) fn append(&self, size: u64, bytes: &[u8]) -> Result<()> {
        let written = retry_on_intr(|| rustix::io::write(&self.file, bytes));
        if written == Ok(bytes.len()) {
            return Ok(());
        }
        // Cut back under the lock, so that no line ever follows a partial one.
        let cut = self.file.set_len(size);
        // A write that is cut short has met a limit, and only the next one would report it.
        let reason = written.map_or_else(io::Error::from, |_| ErrorKind::StorageFull.into());
        let after = if cut.is_ok() { "nothing was appended" } else { "the torn bytes could not be removed" };
        Err(Error::io(format!("cannot append, {after}"), reason).in_file(&self.path).fatal())
    }

    /// Puts bytes in the place of those from `end` on, which are kept elsewhere. A crash leaves these bytes whole, or torn
    /// ones.
    pub(crate) fn replace_end(&self, end: u64, bytes: &[u8]) -> Result<()> {
        // A file that is open for appending ignores offsets.
        let written = OpenOptions::new().write(true).open(&self.path).and_then(|file| {
            file.write_all_at(bytes, end)?;
            file.sync_data()
        });
        let cut = written.and_then(|()| self.file.set_len(end + bytes.len() as u64));
        cut.map_err(|e| Error::io("cannot replace the torn bytes", e).in_file(&self.path).fatal())
    }
}

/// Makes the names in a file's directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Error::new(Code::Io, format!("cannot sync the directory: {e}")).in_file(directory).fatal())
}

fn open(path: &Path, absent: Absent) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(absent != Absent::Fail).mode(0o600).open(path)
}

fn regular(path: &Path, opened: io::Result<File>, absent: Absent) -> Result<File> {
    let file = opened.map_err(|e| cannot_open(path, e, absent))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(Error::validation("not a regular file, so nothing can be appended to it").in_file(path).fatal()),
        Err(e) => Err(cannot_open(path, e, absent)),
    }
}

fn cannot_open(path: &Path, e: io::Error, absent: Absent) -> Error {
    let code = match e.kind() {
        ErrorKind::PermissionDenied => Code::Forbidden,
        // A file that cannot be created is an I/O error, not a missing file.
        ErrorKind::NotFound if absent == Absent::Fail => return Error::not_found("no such file").in_file(path).fatal(),
        _ => Code::Io,
    };
    let failed = Error::io("cannot open for appending", e);
    Error::new(code, failed.message()).in_file(path).hint("name a file that can be written, or another --home").fatal()
}
