//! Changes files atomically, after their previous contents are stored and synced.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use cp_common::home::{lock, make_directory};
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, signals};
use cp_hosts::{Pending, Present};
use cp_ledger::format::line::Hash;
use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::paths::open;
use crate::policy::Policy;
use crate::run::Engine;

/// The lock that is held from the read of a file to its change, so that two changes at the same time cannot overwrite
/// each other.
pub(super) fn locked(policy: &Policy) -> Result<File> {
    let state = policy.cp_home.join("state");
    make_directory(&state)?;
    let path = state.join("files.lock");
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|e| Error::io("opening the lock", e).in_file(&path).fatal())?;
    lock(&file)?;
    Ok(file)
}

/// The file at a path; `None` if nothing exists there.
pub(super) fn present(path: &Path) -> Result<Option<Present>> {
    let file = match open(path, "file", OFlags::empty()) {
        Err(error) if error.code() == Code::NotFound => return Ok(None),
        file => file?,
    };
    Present::read(file, path).map(Some)
}

/// Records changes, with the previous and new contents as blobs of the ledger, and then applies them.
pub(super) fn change(
    engine: &mut Engine,
    operation: &str,
    changes: &[Pending],
    confirmed: Option<&str>,
) -> Result<Receipt> {
    let mut writes = Vec::new();
    for pending in changes {
        writes.push(kept(pending, engine)?);
    }
    let mut what = json!({ "writes": writes, "confirmed": confirmed });
    if let Some(call) = &engine.policy.actor.call {
        what["call"] = call.as_str().into();
    }
    let receipt = engine.journal.operation(operation, &what)?;
    // Several files change together, so a signal must not interrupt the changes.
    let _effect = signals::effect();
    changes.iter().try_for_each(Pending::carry_out)?;
    Ok(receipt)
}

/// Stores the contents of a file before and after a change. Returns the record of the change.
fn kept(pending: &Pending, engine: &mut Engine) -> Result<Value> {
    let mut keep = |hash: &Hash, bytes: &[u8], permissions: Option<u32>| -> Result<Value> {
        engine.journal.keep(hash, bytes)?;
        let permissions = permissions.map(|permissions| format!("{permissions:o}"));
        Ok(json!({ "blob": hash.to_string(), "len": bytes.len(), "permissions": permissions }))
    };
    let before =
        pending.before.as_ref().map(|file| keep(&file.hash, &file.bytes, Some(file.permissions))).transpose()?;
    let kept = pending.before.as_ref().map(|file| file.permissions);
    let after =
        pending.after.as_ref().map(|file| keep(&file.hash, &file.bytes, file.permissions.or(kept))).transpose()?;
    let mut write = json!({ "path": pending.path.display().to_string(), "mode": pending.mode });
    if let (Some(file), Some(after)) = (&pending.after, &after) {
        write["sha256"] = after["blob"].clone();
        write["bytes"] = file.bytes.len().into();
    }
    write["before"] = before.into();
    write["after"] = after.into();
    Ok(write)
}
