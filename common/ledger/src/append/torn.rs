//! Bytes that a crash left behind the last whole line: kept beside the ledger, then cut off.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};

use super::durable::sync_directory;
use crate::read::tail::{for_blocks, hash_of};

/// Bytes that were moved out of a ledger, as the `ledger.recovered` entry lists them.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Sealed {
    offset: u64,
    len: u64,
    sha256: String,
    file: String,
}

/// Copies the bytes from `offset` on to `<file>.torn.<seq>.<sha8>`, makes sure of the copy, then cuts them off. The caller holds the lock.
pub(super) fn seal(file: &File, path: &Path, offset: u64, size: u64, seq: u64) -> Result<Sealed> {
    let doing = |e: io::Error| Error::io("cannot move torn bytes aside", e).in_file(path).fatal();
    // Hash first: the name holds it, and a name that is final from the start leaves no litter.
    let hash = hash_of(file, offset, size).map_err(doing)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn.{seq}.{}", &hash.hex()[..8]));
    let target = PathBuf::from(name);
    let mut copy =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&target).map_err(doing)?;
    for_blocks(file, offset, size, |block| copy.write_all(block)).map_err(doing)?;
    copy.sync_all().map_err(doing)?;
    sync_directory(path)?;
    file.set_len(offset).map_err(doing)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Sealed { offset, len: size - offset, sha256: hash.hex().to_owned(), file: name })
}
