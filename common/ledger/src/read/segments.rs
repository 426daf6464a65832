//! The files of one ledger: closed segments, `X.<20 digits>.jsonl`, beside `X.jsonl`.

use std::path::{Path, PathBuf};

use cp_common::home::resolved;
use cp_common::{Code, Error, Result};

use super::source::lines;

/// The path of a ledger that is named. A link is another name: what belongs to the ledger lies beside the target, even
/// where that is still missing. The name of an open pipe is no link to a file.
pub fn followed(named: &Path) -> PathBuf {
    let target = || std::path::absolute(named).map(|named| resolved(&named)).ok();
    let is_ledger = |target: &PathBuf| target.is_file() || !named.exists();
    let target = Some(named).filter(|named| named.is_symlink()).and_then(|_| target());
    target.filter(is_ledger).unwrap_or_else(|| named.to_owned())
}

/// The sealed segments of a ledger, oldest first: `X.<20 digits>.jsonl` beside `X.jsonl`.
pub fn segments_of(path: &Path) -> Result<Vec<PathBuf>> {
    let (Some(name), Some(stem)) = (path.file_name().and_then(|name| name.to_str()), stem_of(path)) else {
        return Ok(Vec::new());
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(listing) = std::fs::read_dir(directory) else { return Ok(Vec::new()) };
    let mut segments = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|e| Error::io("cannot list", e).in_file(directory))?;
        let Ok(found) = entry.file_name().into_string() else { continue };
        if found != name && number_in(&found).is_some_and(|(of, _)| of == stem) {
            segments.push(path.with_file_name(found));
        }
    }
    segments.sort();
    Ok(segments)
}

/// A ledger's name without its ending.
fn stem_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(".jsonl")
}

/// The stem in a closed segment's name, and the number of its first line.
pub fn number_in(name: &str) -> Option<(&str, u64)> {
    let (stem, digits) = name.strip_suffix(".jsonl")?.rsplit_once('.')?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number).map(|number| (stem, number))
}

/// The name that the file at `path` gets when it is closed.
pub fn name_of(path: &Path) -> Result<PathBuf> {
    let stem =
        stem_of(path).ok_or_else(|| Error::validation("only a ledger named *.jsonl can be rotated").in_file(path))?;
    let mut reader = lines(path)?;
    let first = reader.next()?.and_then(|raw| raw.stored().map(|line| line.seq()));
    let damaged = || Error::new(Code::Integrity, "the first line is damaged, so the segment has no name").in_file(path);
    let first = first.ok_or_else(damaged)?;
    Ok(path.with_file_name(format!("{stem}.{first:020}.jsonl")))
}

/// True if a file is a segment that was closed.
pub fn is_closed(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| number_in(name).is_some())
}

/// The ledger that a file belongs to: itself, or that of which it is a closed segment.
pub fn ledger_of(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match number_in(name) {
        Some((stem, _)) => path.with_file_name(format!("{stem}.jsonl")),
        None => path.to_owned(),
    }
}
