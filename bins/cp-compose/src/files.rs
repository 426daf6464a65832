//! Texts and bytes from files, with errors that name the file.

use std::path::{Path, PathBuf};

use cp_common::context::given;
use cp_common::stream::filter::text_of;
use cp_common::{Code, Error, Result};

/// The largest text file that is taken into a prompt.
const LIMIT: u64 = 4 << 20;

/// The text of a file that was found: a regular one, which nobody can make us wait for.
pub(crate) fn text(file: &Path) -> Result<String> {
    decoded(&bytes(file, LIMIT)?, file)
}

/// The text of a file that an option names: a pipe, too.
pub(crate) fn given(file: &Path) -> Result<String> {
    decoded(&given::bytes(file, LIMIT)?, file)
}

fn decoded(bytes: &[u8], file: &Path) -> Result<String> {
    text_of(bytes).map(str::to_owned).map_err(|e| e.in_file(file))
}

/// The bytes of a regular file that is not longer than `limit`.
fn bytes(file: &Path, limit: u64) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such file").in_file(file),
        std::io::ErrorKind::PermissionDenied => Error::new(Code::Forbidden, "permission denied").in_file(file),
        _ => Error::io("reading", e).in_file(file),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::validation("not a regular file").in_file(file));
    }
    if metadata.len() > limit {
        return Err(Error::validation(format!("too large: {} bytes, the limit is {limit}", metadata.len()))
            .in_file(file)
            .with("bytes", metadata.len())
            .with("limit", limit));
    }
    std::fs::read(file).map_err(failed)
}

/// The `.md` files of a directory in the order of their names. No directory, no files.
pub(crate) fn markdown_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let listing = match std::fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(Error::io("listing", e).in_file(directory)),
    };
    let mut files = Vec::new();
    for entry in listing {
        let path = entry.map_err(|e| Error::io("listing", e).in_file(directory))?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
