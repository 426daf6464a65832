//! Segments: a ledger's file is closed with a seal and gets a name of its own; the next one goes on from the seal's hash.
//!
//! Every step can be the last one before a crash. Whoever opens the ledger next sees the seal at the end of its file and does the rest.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Code, Error, Result, clock};

use super::durable::sync_directory;
use crate::format::Entry;
use crate::format::line::{self, Hash};
use crate::proof::leaves::walk;
use crate::proof::tree::Tree;
use crate::read::segments::{first_seq, name_of};
use crate::read::tail::hash_of;

/// The entry that closes a segment.
pub(super) fn seal(path: &Path) -> Result<Entry> {
    let first = first_seq(path)?;
    let mut tree = Tree::default();
    let size = walk(path, |leaf| {
        tree.push(leaf);
        ControlFlow::Continue(())
    })?
    .size;
    Ok(Entry::new("segment.seal")
        .with("count", &(size - first))
        .with("first", &first)
        .with("last", &size.saturating_sub(1))
        .with("root", &BASE64.encode(tree.root()))
        .with("size", &size))
}

/// Gives a sealed file its own name and puts a new one in its place. The caller holds the lock on the sealed file.
pub(super) fn finish(file: &File, path: &Path, size: u64, seal_seq: u64, seal_hash: &Hash) -> Result<PathBuf> {
    let doing = |e: std::io::Error| Error::io("cannot rotate", e).in_file(path).fatal();
    let segment = name_of(path)?;
    let hash = hash_of(file, 0, size).map_err(doing)?;
    let name = segment.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let opening = Entry::new("segment.open").with("file", &name).with("len", &size).with("sha256", hash.hex());
    let (mut body, mut first_line) = (Vec::new(), Vec::new());
    opening.compose(&mut body);
    line::compose(seal_seq + 1, &clock::now(), &body, seal_hash, &mut first_line)?;
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    let mut options = OpenOptions::new();
    let mut fresh = options.write(true).create(true).truncate(true).mode(0o600).open(&next).map_err(doing)?;
    fresh.write_all(&first_line).and_then(|()| fresh.sync_all()).map_err(doing)?;
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
    // Closed for good: a mistake should fail, not append.
    fs::set_permissions(&segment, Permissions::from_mode(0o444)).map_err(doing)?;
    Ok(segment)
}
