//! The lines of a whole ledger, all segments, as the leaves of its tree: each proved on the way.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result, json, signals};

use crate::format::line::{Hash, Line, inside, members};
use crate::proof::tree::{Node, leaf};
use crate::read::End;
use crate::read::segments::segments_of;
use crate::read::source::lines_of;

/// What was walked.
pub struct Walked {
    /// The ledger's name.
    pub origin: String,
    /// The public key that line 0 says signs its checkpoints.
    pub signer: Option<String>,
    /// How many lines there were.
    pub size: u64,
}

/// Passes the leaves of a ledger's tree to `each`, in order, until it breaks or the lines end. Damage is a failure.
pub fn walk(path: &Path, each: impl FnMut(Node) -> ControlFlow<()>) -> Result<Walked> {
    walk_files(&files_of(path)?, each)
}

/// The files of a ledger, the oldest first.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = segments_of(path)?;
    files.push(path.to_owned());
    Ok(files)
}

/// [`walk`] over the files of a ledger, where they are known.
pub fn walk_files(files: &[PathBuf], mut each: impl FnMut(Node) -> ControlFlow<()>) -> Result<Walked> {
    let (mut begun, mut size) = ((None, None), 0);
    each_line(files, |line| {
        if size == 0 {
            begun = (begun_with(line, b"origin"), begun_with(line, b"verifier"));
        }
        size += 1;
        Ok(each(leaf(&line.hash().raw())))
    })?;
    found(begun, size, files.last().map_or(Path::new(""), PathBuf::as_path))
}

/// The name that the first line of a file gives to a ledger, if it is a stored line that gives one.
pub fn origin_of(first: &Path) -> Result<Option<String>> {
    let mut lines = lines_of(first)?;
    Ok(lines.next()?.and_then(|raw| begun_with(&raw.stored()?, b"origin")))
}

/// Passes the lines of a ledger's files to `each`, in order, until it breaks or the lines end. Damage is a failure.
pub fn each_line(files: &[PathBuf], mut each: impl FnMut(&Line<'_>) -> Result<ControlFlow<()>>) -> Result<()> {
    let (mut prev, mut size) = (None::<Hash>, 0);
    for file in files {
        let mut reader = lines_of(file)?;
        while let Some(raw) = reader.next()? {
            if raw.end == End::File {
                break;
            }
            let fits =
                |line: &Line<'_>| line.is_intact() && line.seq() == size && prev.is_none_or(|prev| prev == line.prev());
            let Some(line) = raw.stored().filter(fits) else {
                return Err(Error::new(Code::Integrity, "the line does not follow from those before it")
                    .with("offset", raw.offset)
                    .at_line(raw.number)
                    .in_file(file)
                    .hint("cp-log verify lists every fault"));
            };
            (prev, size) = (Some(line.hash()), size + 1);
            if each(&line)?.is_break() {
                return Ok(());
            }
            if size % 4096 == 0 {
                signals::check()?;
            }
        }
    }
    Ok(())
}

fn found((origin, signer): (Option<String>, Option<String>), size: u64, path: &Path) -> Result<Walked> {
    match origin {
        Some(origin) => Ok(Walked { origin, signer, size }),
        None => Err(Error::validation("not a ledger: it has no opening line").in_file(path)),
    }
}

/// A text in the data of the first line.
fn begun_with(line: &Line<'_>, member: &[u8]) -> Option<String> {
    let data = inside(line.member("data")?)?;
    let (_, text) = members(data).find(|(name, _)| *name == member)?;
    json::unquote(text)
}
