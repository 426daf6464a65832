//! The lines of a whole ledger, all segments, as the leaves of its tree: each proved on the way.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result, json, signals};
use serde::Deserialize;

use crate::format::line::{Hash, Line};
use crate::proof::note::Verifier;
use crate::proof::note::signer_in;
use crate::proof::tree::{Tree, leaf};
use crate::read::segments::{number_in, segments_of};
use crate::read::{End, lines};

/// The first line of a file that goes on from a closed one.
#[derive(Debug, Deserialize)]
pub struct Opening {
    /// The name of the file before it.
    pub file: String,
    /// The length of that file.
    pub len: u64,
    /// The hash of its bytes.
    pub sha256: String,
}

impl Opening {
    /// Parses a line, if it is an opening.
    pub fn of(line: &Line<'_>) -> Option<Self> {
        let data = line.member("data").filter(|_| line.is_event("segment.open"))?;
        serde_json::from_slice(data).ok()
    }

    /// True if a file is the one before it. The stem may be another: a ledger may be copied under another name as a
    /// whole.
    pub fn follows(&self, name: &str) -> bool {
        number_in(name).map(|(_, number)| number) == number_in(&self.file).map(|(_, number)| number)
    }
}

/// The name of a ledger, the key that line 0 says signs its checkpoints, and the tree of its lines. `each` gets the
/// tree whenever it has grown.
pub fn grow(files: &[PathBuf], mut each: impl FnMut(&Tree)) -> Result<(String, Option<Verifier>, Tree)> {
    let (mut tree, mut origin, mut signer) = (Tree::default(), None, None);
    each(&tree);
    each_line(files, |line| {
        if tree.size() == 0 {
            (origin, signer) = (origin_in(line), signer_in(line));
        }
        tree.push(leaf(&line.hash().raw()));
        each(&tree);
        Ok(ControlFlow::Continue(()))
    })?;
    let no_beginning = || Error::validation("not a ledger: it has no opening line").in_file(&files[files.len() - 1]);
    Ok((origin.ok_or_else(no_beginning)?, signer, tree))
}

/// The files of a ledger, the oldest first.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = segments_of(path)?;
    files.push(path.to_owned());
    Ok(files)
}

/// The name that the first line of a file gives to a ledger, if it is a stored line that gives one.
pub fn origin_of(first: &Path) -> Result<Option<String>> {
    Ok(head_of(first)?.and_then(|(_, origin)| origin))
}

/// The number of the first line of a file, and the name that it gives to the ledger; `None` if it is not a stored line.
pub fn head_of(file: &Path) -> Result<Option<(u64, Option<String>)>> {
    let mut lines = lines(file)?;
    let first = lines.next()?.and_then(|raw| raw.stored());
    Ok(first.map(|line| (line.seq(), origin_in(&line))))
}

/// Passes the lines of a ledger's files to `each`, in order, until it breaks or the lines end. Damage is a failure.
pub fn each_line(files: &[PathBuf], mut each: impl FnMut(&Line<'_>) -> Result<ControlFlow<()>>) -> Result<()> {
    let (mut size, mut prev) = (0, None::<Hash>);
    for file in files {
        let mut reader = lines(file)?;
        while let Some(raw) = reader.next()? {
            if raw.end == End::File {
                break;
            }
            let fits =
                |line: &Line<'_>| line.is_intact() && line.seq() == size && prev.is_none_or(|prev| prev == line.prev());
            let Some(line) = raw.stored().filter(fits) else {
                let missed = raw.stored().filter(|line| line.seq() > size).as_ref().and_then(Opening::of);
                if let Some(opening) = missed {
                    let message = format!("{} or a segment before it is missing", opening.file);
                    return Err(Error::new(Code::Integrity, message)
                        .in_file(file)
                        .hint("put it back beside the ledger"));
                }
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
            if size.is_multiple_of(4096) {
                signals::check()?;
            }
        }
    }
    Ok(())
}

/// The ledger's name, as its first line has it.
pub fn origin_in(line: &Line<'_>) -> Option<String> {
    line.data_member("origin").and_then(json::unquote)
}
