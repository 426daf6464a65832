//! How a session is deleted: it leaves its name at once, and its files go after. What a crash leaves of them is removed by the next one.

use std::fs::File;
use std::path::Path;

use cp_common::home::{Session, TIERS, make_directory};
use cp_common::{Context, Error, Result};
use cp_ledger::store::vault;
use cp_ledger::{Entry, Ledger, Sync};
use serde_json::Value;

/// Where the files of deleted sessions are until they are removed: no session can have this name.
const DELETING: &str = ".deleting";

/// Where deletions are recorded: not the session's own ledger, which goes too.
pub(crate) fn ledger(context: &Context) -> Result<Ledger> {
    Ledger::open(&context.home.ledger("cp-log.jsonl"), Sync::Line)
}

/// Deletes a session: the intent is on the ledger before anything is done, and the result when it is done.
pub(crate) fn delete(session: &Session, intent: &Value, ledger: &mut Ledger) -> Result<()> {
    let failed = |e| Error::io("deleting", e).in_file(&session.directory);
    let sessions = session.directory.parent().unwrap_or(Path::new("."));
    let deleting = sessions.join(DELETING);
    make_directory(&deleting)?;
    let lock = File::open(&deleting).map_err(failed)?;
    lock.lock().map_err(failed)?;
    ledger.append(Entry::new("session_delete").session(&session.id).data(intent))?;
    let gone = deleting.join(&session.id);
    std::fs::rename(&session.directory, &gone).map_err(failed)?;
    File::open(sessions).and_then(|names| names.sync_all()).map_err(failed)?;
    finish(&gone, &session.id, ledger)
}

/// Finishes what a crash kept from being deleted, unless another one is at it.
pub(crate) fn finish_earlier(context: &mut Context) {
    for tier in TIERS {
        let deleting = context.home.sessions(tier).join(DELETING);
        let Ok(lock) = File::open(&deleting) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        for left in std::fs::read_dir(&deleting).into_iter().flatten().flatten() {
            let Ok(id) = left.file_name().into_string() else { continue };
            let finished = ledger(context).and_then(|mut ledger| finish(&left.path(), &id, &mut ledger));
            if let Err(e) = finished {
                context.warn(&format!("the deleted session {id} still has files: {e}"));
            }
        }
    }
}

fn finish(gone: &Path, id: &str, ledger: &mut Ledger) -> Result<()> {
    vault::erase_keys(&gone.join(cp_common::home::sessions::FILE))?;
    let failed = |e| Error::io("deleting", e).in_file(gone);
    for left in std::fs::read_dir(gone).map_err(failed)? {
        let left = left.map_err(failed)?;
        let is_directory = left.file_type().map_err(failed)?.is_dir();
        let path = left.path();
        if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.map_err(failed)?;
    }
    ledger.append(Entry::new("session_deleted").session(id))?;
    // Last, so that a crash before this is made good: as long as the directory is there, the result may not be on the ledger.
    std::fs::remove_dir(gone).map_err(failed)
}
