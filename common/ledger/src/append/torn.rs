//! Bytes that a crash left behind the last whole line: copied to a file beside the ledger, then cut off, then recorded on the ledger.
//!
//! A crash can come between any two of these steps. A file holds the pending entry from before the cut until the entry is on the ledger.

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

/// An entry that is still to be appended to the ledger.
#[derive(Serialize, Deserialize)]
struct PendingEntry {
    /// The place that it gets.
    seq: u64,
    recovered: Sealed,
}

fn pending_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".recovering");
    name.into()
}

/// Copies the bytes from `offset` on to `<file>.torn.<seq>.<sha8>`, makes sure of the copy, then cuts them off. Returns the entry that
/// says so, which is to be written as line `seq`; after that [`clear_pending`] is called. The caller holds the lock.
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
    let owed = serde_json::to_vec(&PendingEntry { seq, recovered: recovered.clone() }).map_err(|e| doing(e.into()))?;
    let mut note = fresh(&pending_path(path)).map_err(doing)?;
    note.write_all(&owed).and_then(|()| note.sync_all()).map_err(doing)?;
    sync_directory(path)?;
    file.set_len(offset).map_err(doing)?;
    Ok(Entry::new("ledger.recovered").data(&recovered))
}

/// The entry that a crash kept from a ledger whose next line is `next`: its bytes were cut off, and it was not written.
pub(super) fn pending_entry(path: &Path, next: u64) -> Result<Option<Entry>> {
    let file = pending_path(path);
    let text = match fs::read(&file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| Error::io("cannot read the pending entry", e).in_file(&file).fatal())?,
    };
    // A partial file means that the bytes were not cut off yet, so they are moved aside again.
    match serde_json::from_slice::<PendingEntry>(&text) {
        Ok(owed) if owed.seq >= next => Ok(Some(Entry::new("ledger.recovered").data(&owed.recovered))),
        Ok(_) | Err(_) => {
            clear_pending(path);
            Ok(None)
        }
    }
}

/// Removes the pending entry, after it is on the ledger and on disk.
pub(super) fn clear_pending(path: &Path) {
    // If the file stays, the next writer sees by the number that the entry was written.
    let _ = fs::remove_file(pending_path(path));
}

fn fresh(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
