//! The keys of sealed values, in slots of one size: a key is overwritten where it lies, and nothing is ever moved or copied.
//!
//! The first two slots are the header. It says which value is being forgotten, so that a crash does not leave it half forgotten.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result};
use rustix::fs::{FlockOperation, flock};

use crate::file::{Absent, Shared, sync_directory};
use crate::format::line::Hash;
use crate::read::tail::read_all;

const MAGIC: &[u8; 16] = b"cp-vault-keys/1\n";
const SLOT: usize = 32;
const HEADER: usize = 64;
/// The slots that the header takes.
const FIRST: u64 = 2;

/// Where a slot starts in the file.
const fn start_of(slot: u64) -> u64 {
    slot.saturating_mul(SLOT as u64)
}

/// How many slots a file of that size has; what a killed writer left of one counts.
const fn slots_in(size: u64) -> u64 {
    size.div_ceil(SLOT as u64)
}

/// How far a value is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The intent is recorded in the vault, and perhaps not yet on the ledger.
    Meant,
    /// The intent is recorded on the ledger.
    Recorded,
}

/// A value that is being forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) stage: Stage,
    /// The slot of its key.
    pub(super) slot: u64,
    pub(crate) hash: Hash,
}

impl Pending {
    fn to_header(pending: Option<&Self>) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        let Some(Self { stage, slot, hash }) = pending else { return header };
        header[16] = match stage {
            Stage::Meant => 1,
            Stage::Recorded => 2,
        };
        // The kind of the place: a slot.
        header[17] = 1;
        header[24..32].copy_from_slice(&slot.to_le_bytes());
        header[32..].copy_from_slice(&hash.raw());
        header
    }

    /// Parses a header; an error if it is not valid.
    fn of_header(header: &[u8; HEADER]) -> std::result::Result<Option<Self>, ()> {
        if header[..16] != MAGIC[..] {
            return Err(());
        }
        let mut slot = [0; 8];
        slot.copy_from_slice(&header[24..32]);
        let slot = u64::from_le_bytes(slot);
        let stage = match header[16] {
            0 => return Ok(None),
            1 => Stage::Meant,
            2 => Stage::Recorded,
            _ => return Err(()),
        };
        if header[17] != 1 || slot < FIRST {
            return Err(());
        }
        let mut raw = [0; 32];
        raw.copy_from_slice(&header[32..]);
        Ok(Some(Self { stage, slot, hash: Hash::from_raw(&raw) }))
    }
}

/// The file of keys, open.
#[derive(Debug)]
pub(super) struct Keys {
    path: PathBuf,
    /// For the lock.
    shared: Shared,
    /// For writing in place, which a file that is open for appending cannot do.
    file: File,
    is_new: bool,
}

/// The lock of the vault, until it is dropped.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Keys {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shared = Shared::open(path, Absent::Create)?;
        let file = in_place(path)?;
        Ok(Self { path: path.to_owned(), shared, file, is_new: false })
    }

    pub(super) fn lock(&mut self) -> Result<impl Drop + use<>> {
        let held = self.shared.lock()?;
        let lock = Lock(self.shared.file().try_clone().map_err(|e| self.failed("cannot lock", e))?);
        if held.replaced {
            self.file = in_place(&self.path)?;
        }
        if held.size < HEADER as u64 {
            // A new file, or one whose creator was killed. The header comes before all keys.
            self.file.write_all_at(&Pending::to_header(None), 0).map_err(|e| self.failed("cannot write", e))?;
            self.is_new = true;
        }
        self.pending()?;
        Ok(lock)
    }

    /// Keeps a key. Returns its slot.
    pub(super) fn add(&mut self, key: &[u8; 32]) -> Result<u64> {
        let size = self.file.metadata().map_err(|e| self.failed("cannot read its size", e))?.len();
        let slot = slots_in(size);
        if let Err(e) = self.file.write_all_at(key, start_of(slot)) {
            let _ = self.file.set_len(size);
            return Err(self.failed("cannot seal", e));
        }
        Ok(slot)
    }

    /// The key in a slot. `None` once it was overwritten.
    pub(super) fn key(&self, slot: u64) -> Result<Option<[u8; 32]>> {
        key_in(&self.file, slot).map_err(|e| self.failed("cannot read", e))
    }

    /// Overwrites the key in a slot, on disk.
    pub(super) fn erase(&mut self, slot: u64) -> Result<()> {
        let written = self.file.write_all_at(&[0; SLOT], start_of(slot)).and_then(|()| self.file.sync_all());
        written.map_err(|e| self.failed("cannot overwrite the key", e))
    }

    pub(super) fn pending(&self) -> Result<Option<Pending>> {
        header_of(&self.file, &self.path)
    }

    /// Writes the header, on disk.
    pub(super) fn set_pending(&mut self, pending: Option<&Pending>) -> Result<()> {
        let written = self.file.write_all_at(&Pending::to_header(pending), 0).and_then(|()| self.file.sync_all());
        written.map_err(|e| self.failed("cannot write", e))
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|e| self.failed("cannot sync", e))?;
        if self.is_new {
            sync_directory(&self.path)?;
            self.is_new = false;
        }
        Ok(())
    }

    fn failed(&self, what: &str, e: io::Error) -> Error {
        Error::io(format!("the keys of the vault: {what}"), e).in_file(&self.path).fatal()
    }
}

fn in_place(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|e| Error::io("cannot open the keys of the vault", e).in_file(path).fatal())
}

fn key_in(file: &File, slot: u64) -> io::Result<Option<[u8; 32]>> {
    let mut key = [0; SLOT];
    match read_all(file, &mut key, start_of(slot)) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    Ok((slot >= FIRST && key != [0; SLOT]).then_some(key))
}

fn header_of(file: &File, path: &Path) -> Result<Option<Pending>> {
    let mut header = [0; HEADER];
    match read_all(file, &mut header, 0) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map_err(|e| Error::io("cannot read the keys of the vault", e).in_file(path))?,
    }
    Pending::of_header(&header)
        .map_err(|()| Error::new(Code::Integrity, "these are not the keys of a vault").in_file(path).fatal())
}

/// The value that is being forgotten, read without the lock.
pub(super) fn look(path: &Path) -> Result<Option<Pending>> {
    opened(path)?.map_or(Ok(None), |file| header_of(&file, path))
}

/// The key in a slot, without the lock.
pub(super) fn key_of(path: &Path, slot: u64) -> Result<Option<[u8; 32]>> {
    let failed = |e| Error::io("cannot read the keys of the vault", e).in_file(path);
    opened(path)?.map_or(Ok(None), |file| key_in(&file, slot).map_err(failed))
}

fn opened(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        file => file.map(Some).map_err(|e| Error::io("cannot open the keys of the vault", e).in_file(path)),
    }
}

/// Overwrites every key, on disk.
pub(super) fn erase_all(path: &Path) -> Result<()> {
    let failed = |e| Error::io("cannot overwrite the keys of the vault", e).in_file(path);
    let file = match OpenOptions::new().write(true).open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        file => file.map_err(failed)?,
    };
    let size = file.metadata().map_err(failed)?.len();
    for slot in FIRST..slots_in(size) {
        file.write_all_at(&[0; SLOT], start_of(slot)).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}
