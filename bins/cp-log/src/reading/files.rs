//! Which files are read: operands, directories, the segments of a rotated ledger, and the defaults.

use std::path::{Path, PathBuf};

use cp_common::{Context, Error, Result};
use cp_ledger::format::line::Line;
use cp_ledger::home::session_directory;
use cp_ledger::read::lines;
use cp_ledger::read::segments::segments_of;

use crate::reading::Select;

/// A file to read, and whether it was named itself or found in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) named: bool,
}

/// The files that are read: the operands, with a directory standing for the ledgers below it and a ledger for its segments
/// first; without operands the named ledger, the session's ledgers, or all of home's.
pub(crate) fn to_read(operands: &[PathBuf], context: &Context) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    if operands.is_empty() {
        match (&context.options.ledger, session_directory(context)?) {
            (Some(ledger), _) => add(ledger, &mut targets)?,
            (None, Some(directory)) => add_directory(&directory, &mut targets)?,
            (None, None) => {
                for part in ["ledger", "planes", "memory"] {
                    let directory = context.home.path(part);
                    if directory.is_dir() {
                        add_directory(&directory, &mut targets)?;
                    }
                }
            }
        }
    }
    for operand in operands {
        add(operand, &mut targets)?;
    }
    Ok(targets)
}

fn add(path: &Path, targets: &mut Vec<Target>) -> Result<()> {
    if path.is_dir() {
        return add_directory(path, targets);
    }
    let segments = segments_of(path)?;
    targets.extend(segments.into_iter().map(|path| Target { path, named: true }));
    targets.push(Target { path: path.to_owned(), named: true });
    Ok(())
}

fn add_directory(directory: &Path, targets: &mut Vec<Target>) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("cannot list", e).in_file(directory);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    // The name of a segment sorts before that of its ledger, because digits sort before letters.
    paths.sort();
    for path in paths {
        // A link would bring the same file twice, or lead out of the directory.
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() && path.extension().is_none_or(|extension| extension != "blobs") {
            add_directory(&path, targets)?;
        } else if metadata.is_file() && path.extension().is_some_and(|extension| extension == "jsonl") {
            targets.push(Target { path, named: false });
        }
    }
    Ok(())
}

/// Calls `each` with every matching line, file after file.
pub(crate) fn each_line(
    targets: &[Target],
    select: &Select,
    each: &mut dyn FnMut(&Line<'_>) -> Result<()>,
) -> Result<()> {
    for target in targets {
        let mut reader = lines(&target.path)?;
        while let Some(raw) = select.next(&mut reader)? {
            if let Some(line) = raw.stored().filter(|line| select.matches(line)) {
                each(&line)?;
            }
        }
    }
    Ok(())
}
