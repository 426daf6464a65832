//! The sealed values themselves, a row each: the hash, the slot of the key, and the salt and the value encrypted under it.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Error, Result};
use serde::Deserialize;

use crate::file::{Absent, Shared, sync_directory};
use crate::format::line::Hash;

#[derive(Deserialize)]
struct Row<'a> {
    sealed: &'a str,
    slot: u64,
    #[serde(rename = "box")]
    boxed: &'a str,
}

/// A stored value: salt and value, encrypted under the key in a slot.
pub(super) struct StoredValue {
    pub(super) slot: u64,
    pub(super) sealed: Vec<u8>,
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
}

/// The row of a hash.
pub(super) fn find(path: &Path, hash: &Hash) -> Result<Option<StoredValue>> {
    let failed = |e| Error::io("cannot read the vault", e).in_file(path);
    let file = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let wanted = hash.to_string();
    let (mut reader, mut row) = (BufReader::new(file), Vec::new());
    while reader.read_until(b'\n', &mut row).map_err(failed)? > 0 {
        if memchr::memmem::find(&row, wanted.as_bytes()).is_some()
            && let Some(found) = parse(&row, &wanted)
        {
            return Ok(Some(found));
        }
        row.clear();
    }
    Ok(None)
}

fn parse(row: &[u8], wanted: &str) -> Option<StoredValue> {
    let row: Row<'_> = serde_json::from_slice(row).ok().filter(|row: &Row<'_>| row.sealed == wanted)?;
    Some(StoredValue { slot: row.slot, sealed: BASE64.decode(row.boxed).ok()? })
}
