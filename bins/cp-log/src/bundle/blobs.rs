//! The large values that lines name by their hash.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Code, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;

use super::format::Blob;

/// The most of a value that one record has, so that no line is too long to be read.
const PART: usize = 4 << 20;

/// The blobs of one ledger, each once.
pub(super) struct Blobs<'a> {
    ledger: &'a Path,
    /// True if there is anything to look for.
    has_any: bool,
    written: HashSet<[u8; 32]>,
    pub(super) count: u64,
}

/// The hashes in a line's text.
fn named(raw: &[u8]) -> impl Iterator<Item = Hash> + '_ {
    const PREFIX: &[u8] = b"sha256:";
    memchr::memmem::find_iter(raw, PREFIX).filter_map(|at| Hash::from_hex(raw.get(at + 7..at + 71)?))
}

impl<'a> Blobs<'a> {
    pub(super) fn of(ledger: &'a Path) -> Self {
        let has_any = blob::directory(ledger).is_dir();
        Self { ledger, has_any, written: HashSet::new(), count: 0 }
    }

    /// Passes the blobs that a line names and that were not passed yet.
    pub(super) fn of_line(&mut self, raw: &[u8], each: &mut dyn FnMut(&Blob<'_>) -> Result<()>) -> Result<()> {
        let must: HashSet<[u8; 32]> = blob::references(raw).map(|hash| hash.raw()).collect();
        if !self.has_any && must.is_empty() {
            return Ok(());
        }
        for hash in named(raw) {
            let path = blob::path(self.ledger, &hash);
            if !(must.contains(&hash.raw()) || path.is_file()) || !self.written.insert(hash.raw()) {
                continue;
            }
            self.count += 1;
            pass(&hash, &path, each)?;
        }
        Ok(())
    }
}

/// Passes the parts of one blob.
fn pass(hash: &Hash, path: &Path, each: &mut dyn FnMut(&Blob<'_>) -> Result<()>) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("cannot read the blob", e).in_file(path).fatal();
    let empty = |media_type: &'static str| Blob {
        hash: hash.to_string().into(),
        media_type: media_type.into(),
        size: 0,
        offset: 0,
        base64: "".into(),
        missing: false,
    };
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return each(&Blob { missing: true, ..empty("application/octet-stream") });
        }
        Err(e) => return Err(failed(e)),
    };
    let size = file.metadata().map_err(failed)?.len();
    let (mut part, mut offset, mut media) = (Vec::with_capacity(PART.min(1 << 16)), 0, None);
    loop {
        part.clear();
        file.by_ref().take(PART as u64).read_to_end(&mut part).map_err(failed)?;
        if part.is_empty() && (offset > 0 || size > 0) {
            break;
        }
        let media = *media.get_or_insert_with(|| media_type(&part));
        each(&Blob { size, offset, base64: BASE64.encode(&part).into(), ..empty(media) })?;
        offset += part.len() as u64;
        if size == 0 {
            break;
        }
    }
    if offset != size {
        return Err(Error::new(Code::Conflict, "the blob changed while it was read").in_file(path).fatal());
    }
    Ok(())
}

/// The media type of a value by its first part, in which text may be cut within a character.
fn media_type(part: &[u8]) -> &'static str {
    match std::str::from_utf8(part) {
        Err(e) if e.error_len().is_some() => "application/octet-stream",
        _ if matches!(part.first(), Some(b'{' | b'['))
            && serde_json::from_slice::<serde::de::IgnoredAny>(part).is_ok() =>
        {
            "application/json"
        }
        _ => "text/plain; charset=utf-8",
    }
}
