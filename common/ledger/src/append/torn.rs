//! Bytes that a crash left behind the last whole line: kept beside the ledger, then cut off, then told on the ledger.
//!
//! A crash can come between any two of these. The entry that is owed lies in a file of its own from before the cut until it is on the ledger.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::file::sync_directory;
use crate::format::Entry;
use crate::read::tail::{for_blocks, hash_of};

/// Bytes that were moved out of a ledger, as the `ledger.recovered` entry lists them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sealed {
    offset: u64,
    len: u64,
    sha256: String,
    file: String,
}

/// An entry that is owed to the ledger.
#[derive(Serialize, Deserialize)]
struct Owed {
    /// The place it gets.
    seq: u64,
    recovered: Sealed,
}

fn owed_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".recovering");
    name.into()
}

/// Copies the bytes from `offset` on to `<file>.torn.<seq>.<sha8>`, makes sure of the copy, then cuts them off. Returns the entry that
/// says so, which is to be written as line `seq`; after that [`told`] is called. The caller holds the lock.
pub(super) fn seal(file: &File, path: &Path, offset: u64, size: u64, seq: u64) -> Result<Entry> {
    let doing = |e: io::Error| Error::io("cannot move torn bytes aside", e).in_file(path).fatal();
    // Hash first: the name holds it, and a name that is final from the start leaves no litter.
    let hash = hash_of(file, offset, size).map_err(doing)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn.{seq}.{}", &hash.hex()[..8]));
    let target = PathBuf::from(name);
    let mut copy = fresh(&target).map_err(doing)?;
    for_blocks(file, offset, size, |block| copy.write_all(block)).map_err(doing)?;
    copy.sync_all().map_err(doing)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let recovered = Sealed { offset, len: size - offset, sha256: hash.hex().to_owned(), file: name };
    let owed = serde_json::to_vec(&Owed { seq, recovered: recovered.clone() }).map_err(|e| doing(e.into()))?;
    let mut note = fresh(&owed_path(path)).map_err(doing)?;
    note.write_all(&owed).and_then(|()| note.sync_all()).map_err(doing)?;
    sync_directory(path)?;
    file.set_len(offset).map_err(doing)?;
    Ok(Entry::new("ledger.recovered").data(&recovered))
}

/// The entry that a crash kept from a ledger whose next line is `next`: its bytes were cut off, and it was not written.
pub(super) fn owed(path: &Path, next: u64) -> Result<Option<Entry>> {
    let file = owed_path(path);
    let text = match fs::read(&file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| Error::io("cannot read what is to be told", e).in_file(&file).fatal())?,
    };
    // One that is not whole was not followed by a cut: the bytes are still there, and are sealed again.
    match serde_json::from_slice::<Owed>(&text) {
        Ok(owed) if owed.seq >= next => Ok(Some(Entry::new("ledger.recovered").data(&owed.recovered))),
        Ok(_) | Err(_) => {
            told(path);
            Ok(None)
        }
    }
}

/// Takes note that the entry is on the ledger, and on disk.
pub(super) fn told(path: &Path) {
    // If it stays, the next writer sees by its number that it was told.
    let _ = fs::remove_file(owed_path(path));
}

fn fresh(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
