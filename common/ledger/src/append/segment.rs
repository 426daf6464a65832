//! Segments: a ledger's file is closed with a seal and renamed; the next file continues the chain from the seal's hash.
//!
//! A crash can come after every step. The next writer that opens the ledger sees the seal at the end of the file and
//! completes the rotation.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Code, Error, Result, clock, json};

use super::durable::sync_directory;
use crate::format::Entry;
use crate::format::line::{self, Line};
use crate::proof::leaves::{files_of, grow, origin_of};
use crate::read::segments::{is_closed, name_of};
use crate::read::tail::{Last, Tail, hash_of};

/// The entry that closes a segment.
pub(super) fn seal(path: &Path) -> Result<Entry> {
    let (_, _, tree) = grow(&files_of(path)?, |_| ())?;
    Ok(Entry::new("segment.seal").with("size", &tree.size()).with("root", &BASE64.encode(tree.root())))
}

/// Gives a sealed file its own name and replaces it by a new one, which begins with what it follows. The caller holds
/// the lock on the sealed file, whose end is `tail`. Returns that name.
pub(super) fn finish(file: &File, path: &Path, tail: &Tail) -> Result<PathBuf> {
    let doing = |e: std::io::Error| Error::io("cannot rotate", e).in_file(path).fatal();
    let segment = name_of(path)?;
    let mode = file.metadata().map_err(doing)?.mode() & 0o777;
    let opening = opening(file, path, tail, &segment)?;
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    let mut options = OpenOptions::new();
    let mut fresh = options.write(true).create(true).truncate(true).mode(0o600).open(&next).map_err(doing)?;
    // The new file has the permissions of the old one.
    fresh.set_permissions(Permissions::from_mode(mode | 0o600)).map_err(doing)?;
    fresh.write_all(&opening).and_then(|()| fresh.sync_all()).map_err(doing)?;
    // A link and one rename: the ledger's name always has a file, so no other process can create one in between.
    match fs::hard_link(path, &segment) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let (there, ours) = (fs::metadata(&segment).map_err(doing)?, file.metadata().map_err(doing)?);
            if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) {
                return Err(Error::new(Code::Conflict, "another file has the segment's name")
                    .in_file(&segment)
                    .fatal());
            }
        }
        linked => linked.map_err(doing)?,
    }
    sync_directory(path)?;
    fs::rename(&next, path).map_err(doing)?;
    sync_directory(path)?;
    close(&segment).map_err(doing)?;
    Ok(segment)
}

/// The line that a new file begins with, after the seal that ends the one before it.
fn opening(file: &File, path: &Path, tail: &Tail, segment: &Path) -> Result<Vec<u8>> {
    let doing = |e: std::io::Error| Error::io("cannot rotate", e).in_file(path).fatal();
    let Last::Intact { seq, hash, .. } = tail.last else {
        return Err(Error::new(Code::Integrity, "the seal is damaged").in_file(path).fatal());
    };
    let sha256 = hash_of(file, 0, tail.end).map_err(doing)?;
    let name = segment.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut entry = Entry::new("segment.open").with("file", &name).with("len", &tail.end).with("sha256", sha256.hex());
    if let Some(origin) = origin_of(path)? {
        entry = entry.with("origin", &origin);
    }
    let (mut body, mut line) = (Vec::new(), Vec::new());
    entry.compose(&mut body);
    line::compose(seq + 1, &clock::now(), &body, &hash, &mut line)?;
    Ok(line)
}

/// Makes a segment read-only, so that a mistaken append fails. No permission to read is added.
fn close(segment: &Path) -> std::io::Result<()> {
    let mode = fs::metadata(segment)?.mode();
    if mode & 0o222 == 0 {
        return Ok(());
    }
    fs::set_permissions(segment, Permissions::from_mode(mode & 0o444))
}

/// Closes the segment that a file's first line names, if a crash came before that.
pub(super) fn close_named_segment(path: &Path, first: &Line<'_>) {
    let Some(name) = first.data_member("file").and_then(json::unquote).filter(|name| !name.contains('/')) else {
        return;
    };
    let segment = path.with_file_name(name);
    if is_closed(&segment) {
        // The segment may be missing or belong to another account; nothing depends on its permissions.
        let _ = close(&segment);
    }
}
