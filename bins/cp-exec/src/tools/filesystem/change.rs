//! Changes files atomically, after their previous contents are stored and synced, and only if a run knows the content
//! that it changes.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use cp_common::home::{lock, make_directory};
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, signals};
use cp_hosts::{Pending, Present};
use cp_ledger::format::line::Hash;
use memchr::memmem;
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::{Value, json};

use super::open;
use crate::policy::Policy;
use crate::run::{Engine, quoted};

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

/// The most lines of the ledger that are searched backwards. Earlier reads and writes of the run do not count.
const LINES: usize = 100_000;

#[derive(Deserialize)]
struct Data {
    what: Recorded,
}

#[derive(Deserialize)]
struct Recorded {
    #[serde(default)]
    reads: Vec<Known>,
    #[serde(default)]
    writes: Vec<Known>,
}

#[derive(Deserialize)]
struct Known {
    path: String,
    /// The hash of the whole file, if it was read and the hash is known.
    file_sha256: Option<String>,
    /// The hash of the new content, if the file was written.
    sha256: Option<String>,
}

/// Refuses a file that differs from the hash that its caller expects, or that changed since this run last read or
/// wrote it. True if the caller or the run knows its content.
pub(super) fn unchanged(policy: &Policy, path: &Path, now: &Present, expected: Option<&str>) -> Result<bool> {
    let conflict = |message: String| {
        Error::new(Code::Conflict, message)
            .with("rule", "changed")
            .with("path", path.display().to_string())
            .with("sha256", now.hash.to_string())
            .hint("read it again, then change what it holds now")
    };
    if let Some(expected) = expected {
        let Some(hash) = Hash::parse(expected) else {
            return Err(Error::validation("expected_sha256 is not `sha256:` and 64 hex digits").with("rule", "path"));
        };
        if hash != now.hash {
            return Err(conflict(format!("{} does not have the expected hash", path.display())));
        }
        return Ok(true);
    }
    match last_known(policy, &path.display().to_string())? {
        None => Ok(false),
        Some(known) if known == now.hash.to_string() => Ok(true),
        Some(_) => {
            Err(conflict(format!("{} was changed by others since this run last read or wrote it", path.display())))
        }
    }
}

/// The hash of a file when this run last read all of it or wrote it; empty if the run removed it.
fn last_known(policy: &Policy, path: &str) -> Result<Option<String>> {
    let Some(run) = &policy.actor.run else { return Ok(None) };
    if !policy.ledger.exists() {
        return Ok(None);
    }
    // Lines that do not contain the path are skipped without parsing.
    let (named, run) = (quoted(path), quoted(run));
    let named = memmem::Finder::new(&named);
    let mut lines = cp_ledger::read::backward(&policy.ledger)?;
    for _ in 0..LINES {
        let Some(raw) = lines.next()? else { break };
        let Some(line) = raw.stored().filter(|_| named.find(raw.bytes).is_some()) else { continue };
        if !line.is_event("exec.operation") || line.member("run") != Some(&run) {
            continue;
        }
        let data = line.member("data").and_then(|data| serde_json::from_slice::<Data>(data).ok());
        let Some(Data { what }) = data else { continue };
        if let Some(write) = what.writes.into_iter().rfind(|write| write.path == path) {
            return Ok(Some(write.sha256.unwrap_or_default()));
        }
        if let Some(hash) = what.reads.into_iter().filter(|read| read.path == path).find_map(|read| read.file_sha256) {
            return Ok(Some(hash));
        }
    }
    Ok(None)
}
