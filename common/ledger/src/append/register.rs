//! The register of a home: its own ledger names every other one that is made in the home, so that a checkpoint of it
//! tells which ledgers there were.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cp_common::Result;
use cp_common::home::OF_PROCESS;
use cp_common::wire::Receipt;

use super::{Ledger, Sync};
use crate::format::Entry;
use crate::read::segments::{followed, segments_of};
use crate::read::tail::is_ledger_file;
use crate::read::{lines, open};

/// The home's own ledger.
const OWN: &str = "ledger/cp-log.jsonl";

/// Names a new ledger of the home of this process.
pub(crate) fn name(ledger: &Path) -> Result<()> {
    let Some(home) = OF_PROCESS.get().and_then(|home| home.canonicalize().ok()) else { return Ok(()) };
    match ledger.strip_prefix(&home).ok().and_then(Path::to_str) {
        // A name that a power failure takes accuses nobody.
        Some(file) if file != OWN => record(&home, "ledger.made", file, Sync::None).map(drop),
        _ => Ok(()),
    }
}

/// Records that a ledger of a home, or a directory of ledgers, was removed on purpose.
pub fn remove(home: &Path, file: &Path) -> Result<Receipt> {
    record(home, "ledger.removed", &file.to_string_lossy(), Sync::Line)
}

fn record(home: &Path, event: &str, file: &str, sync: Sync) -> Result<Receipt> {
    Ledger::open(&home.join(OWN), sync)?.append(Entry::new(event).with("file", file))
}

/// The ledgers below a home that its own ledger names, that are not there, and that nobody removed on record.
pub fn missing(home: &Path) -> Result<BTreeSet<PathBuf>> {
    let own = followed(&home.join(OWN));
    let mut named: BTreeSet<PathBuf> = own.is_file().then(|| OWN.into()).into_iter().collect();
    let mut files = segments_of(&own)?;
    files.extend(own.is_file().then(|| own.clone()));
    for file in files {
        let mut lines = lines(&file)?;
        while let Some(raw) = lines.next()? {
            let Some(line) = raw.stored() else { continue };
            let text = |json: Option<&[u8]>| serde_json::from_slice::<String>(json.unwrap_or_default()).ok();
            let file = || text(line.data_member("file")).filter(|file| !file.is_empty());
            if line.is_event("ledger.made") {
                named.extend(file().map(PathBuf::from));
            } else if let Some(removed) = file().filter(|_| line.is_event("ledger.removed")) {
                named.retain(|file| !file.starts_with(&removed));
            } else if let Some(session) = text(line.member("session")).filter(|_| line.is_event("session_delete")) {
                named.retain(|file| !file.iter().any(|part| part == session.as_str()));
            }
        }
    }
    named.retain(|file| !is_there(&home.join(file)));
    Ok(named)
}

/// True if a ledger is still one, was emptied, or cannot be looked at: a file of another program in its place is not.
fn is_there(ledger: &Path) -> bool {
    match open(ledger) {
        Ok(file) => {
            file.metadata().is_ok_and(|metadata| metadata.len() == 0) || is_ledger_file(&file, ledger).unwrap_or(true)
        }
        Err(_) => ledger.try_exists().unwrap_or(true),
    }
}
