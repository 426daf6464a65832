//! The content of a file that a run knows: the content when the run last read or wrote it, according to its ledger.

use std::path::Path;

use cp_common::{Code, Error, Result};
use cp_hosts::Present;
use cp_ledger::format::line::Hash;
use memchr::memmem;
use serde::Deserialize;

use crate::policy::Policy;

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
    let quoted = |text: &str| {
        let mut quoted = Vec::new();
        cp_common::json::string(text, &mut quoted);
        quoted
    };
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
