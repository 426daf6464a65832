//! The sealed values themselves, a row each: the hash, the slot of the key, and the salt and the value encrypted under it.
//!
//! An older version wrote salt and value in clear; such rows are read, and overwritten with spaces when they are forgotten.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::file::{Absent, Shared, sync_directory};
use crate::format::line::Hash;

/// The members of a row. They determine which of the two kinds it is.
#[derive(Deserialize)]
struct Row<'a> {
    sealed: &'a str,
    slot: Option<u64>,
    #[serde(rename = "box")]
    boxed: Option<&'a str>,
    salt: Option<&'a str>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

/// A row of a hash.
pub(super) enum StoredValue {
    /// Salt and value, encrypted under the key in a slot.
    Encrypted { slot: u64, sealed: Vec<u8> },
    /// Salt and value, in clear, in a row at this offset.
    Plain { offset: u64, sealed: Vec<u8> },
}

/// The file of rows, open.
#[derive(Debug)]
pub(super) struct Rows {
    path: PathBuf,
    shared: Shared,
    is_new: bool,
}

impl Rows {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), shared: Shared::open(path, Absent::Create)?, is_new: false })
    }

    /// Appends a row. The lock of the keys is held; this one is for what else may write here.
    pub(super) fn add(&mut self, hash: &Hash, slot: u64, sealed: &[u8]) -> Result<()> {
        let row = format!("{{\"sealed\":\"{hash}\",\"slot\":{slot},\"box\":\"{}\"}}\n", BASE64.encode(sealed));
        let held = self.shared.lock()?;
        self.is_new |= held.size == 0;
        let added = self.shared.append_line(held.size, row.as_bytes());
        self.shared.unlock();
        added
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        let failed = |e| Error::io("the vault: cannot sync", e).in_file(&self.path).fatal();
        self.shared.file().sync_data().map_err(failed)?;
        if self.is_new {
            sync_directory(&self.path)?;
            self.is_new = false;
        }
        Ok(())
    }

    pub(super) fn find(&self, hash: &Hash) -> Result<Option<StoredValue>> {
        find(&self.path, hash)
    }

    /// Overwrites the row that starts there with spaces, on disk.
    pub(super) fn erase(&mut self, offset: u64) -> Result<()> {
        let failed = |e| Error::io("the vault: cannot overwrite the value", e).in_file(&self.path).fatal();
        let file = OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed)?;
        let mut row = Vec::new();
        let mut reader = BufReader::new(&file);
        std::io::Seek::seek(&mut reader, std::io::SeekFrom::Start(offset)).map_err(failed)?;
        reader.read_until(b'\n', &mut row).map_err(failed)?;
        let length = row.strip_suffix(b"\n").unwrap_or(&row).len();
        file.write_all_at(&vec![b' '; length], offset).and_then(|()| file.sync_all()).map_err(failed)
    }
}

/// The row of a hash.
pub(super) fn find(path: &Path, hash: &Hash) -> Result<Option<StoredValue>> {
    let failed = |e| Error::io("cannot read the vault", e).in_file(path);
    let file = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let wanted = hash.to_string();
    let (mut reader, mut row, mut offset) = (BufReader::new(file), Vec::new(), 0);
    loop {
        row.clear();
        let read = reader.read_until(b'\n', &mut row).map_err(failed)?;
        if read == 0 {
            return Ok(None);
        }
        if memchr::memmem::find(&row, wanted.as_bytes()).is_some()
            && let Some(found) = parse(&row, &wanted, offset)
        {
            return Ok(Some(found));
        }
        offset += read as u64;
    }
}

fn parse(row: &[u8], wanted: &str, offset: u64) -> Option<StoredValue> {
    let row: Row<'_> = serde_json::from_slice(row).ok()?;
    if row.sealed != wanted {
        return None;
    }
    if let (Some(slot), Some(boxed)) = (row.slot, row.boxed) {
        return Some(StoredValue::Encrypted { slot, sealed: BASE64.decode(boxed).ok()? });
    }
    let mut sealed = base16ct::lower::decode_vec(row.salt?).ok()?;
    sealed.extend_from_slice(row.value?.get().as_bytes());
    Some(StoredValue::Plain { offset, sealed })
}
