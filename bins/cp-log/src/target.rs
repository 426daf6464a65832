//! Which files a verb means: operands, directories, the segments of a rotated ledger, and the defaults.

use std::path::{Path, PathBuf};

use cp_common::program::{Check, Status};
use cp_common::{Context, Error, Result};
use cp_ledger::home::session_directory;
use cp_ledger::read::open;
use cp_ledger::read::segments::segments_of;
use cp_ledger::read::tail::{Last, Tail};

/// A file to read, and whether somebody named it or it was found in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) named: bool,
}

/// The file that is appended to where the verb's own option names none: `--ledger`, the setting, else home's.
pub(crate) fn own_ledger(named: Option<&Path>, context: &Context) -> PathBuf {
    let option = named.or(context.options.ledger.as_deref()).map(Path::to_owned);
    let setting = || context.config.text("ledger", None).map(PathBuf::from);
    option.or_else(setting).unwrap_or_else(|| context.home.ledger("cp-log.jsonl"))
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
    // A segment's name sorts before the name of its ledger, because digits sort before letters.
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

/// What `doctor` looks at.
pub(crate) fn checks(context: &mut Context) -> Vec<Check> {
    let path = own_ledger(None, context);
    let shown = path.display().to_string();
    if !path.exists() {
        return vec![Check::pass("ledger", format!("{shown} will be made by the first append"))];
    }
    let state = open(&path).and_then(|file| {
        let size = file.metadata().map_err(|e| Error::io("cannot look at", e))?.len();
        Ok(Tail::read(&file, size)?)
    });
    vec![match state {
        Ok(Tail { last: Last::Intact { seq, .. }, .. }) => {
            Check::pass("ledger", format!("{shown} ends with line {seq}"))
        }
        Ok(Tail { last: Last::Damaged, .. }) => {
            let fix = "cp-log verify shows where, cp-log repair --tail moves it aside";
            Check::not_fine("ledger", Status::Fail, format!("the last line of {shown} is damaged"), fix)
        }
        Ok(Tail { last: Last::None, .. }) => {
            let fix = "name another file with --ledger or CP_LEDGER";
            Check::not_fine("ledger", Status::Warn, format!("{shown} holds no whole line"), fix)
        }
        Err(e) => Check::not_fine("ledger", Status::Fail, e.message(), "make the file readable"),
    }]
}
