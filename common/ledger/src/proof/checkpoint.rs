//! The checkpoint beside a ledger, `X.checkpoint` beside `X.jsonl`, and the entry that records it.

use std::path::{Path, PathBuf};

use cp_common::home::write_whole;
use cp_common::{Code, Error, Result, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::note::{Checkpoint, Note, Verifier};
use crate::file::{Absent, Shared};
use crate::format::line::Line;

/// The data of an entry about a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct Signed {
    /// How many lines the checkpoint covers.
    pub size: u64,
    /// The root of their tree, in base 64.
    pub root: String,
    /// The public key of the signer.
    pub verifier: String,
}

/// The key that line 0 says signs the checkpoints.
pub fn signer_in(first: &Line<'_>) -> Option<Verifier> {
    Verifier::from_text(&first.data_member("verifier").and_then(json::unquote)?)
}

/// Where a ledger's checkpoint is: `X.checkpoint` beside `X.jsonl`.
pub fn checkpoint_path(ledger: &Path) -> PathBuf {
    let name = ledger.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ledger.with_file_name(format!("{}.checkpoint", name.strip_suffix(".jsonl").unwrap_or(&name)))
}

/// Reads a checkpoint. `None` if there is no such file.
pub fn read_checkpoint(path: &Path) -> Result<Option<(Note, Checkpoint)>> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // Its creator holds the lock, or was killed.
        Ok(text) if text.is_empty() => return Ok(None),
        text => text.map_err(|e| Error::io("cannot read the checkpoint", e).in_file(path))?,
    };
    // The answer of `cp-log checkpoint` has the note.
    let answer: Option<Value> = serde_json::from_str(&text).ok();
    let text = answer.as_ref().and_then(|answer| answer["data"]["note"].as_str()).unwrap_or(&text);
    let read = Note::parse(text).and_then(|note| Checkpoint::parse(&note.text).map(|checkpoint| (note, checkpoint)));
    read.map(Some).ok_or_else(|| Error::new(Code::Integrity, "not a checkpoint").in_file(path))
}

/// The file of a checkpoint, which this process alone may replace, until this is dropped.
#[derive(Debug)]
pub struct HeldCheckpoint {
    path: PathBuf,
    newest: Option<(Note, Checkpoint)>,
    /// Replacing gives the name another file, so who waited looks again.
    _lock: Shared,
}

impl HeldCheckpoint {
    /// Takes the lock, and then reads what is there.
    pub fn take(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|e| Error::io("cannot find the file", e).in_file(path))?;
        let mut lock = Shared::open(&path, Absent::CreateAll)?;
        lock.lock()?;
        // Dropped where reading fails, so that an empty file does not stay.
        let mut held = Self { newest: None, path, _lock: lock };
        held.newest = read_checkpoint(&held.path)?;
        Ok(held)
    }

    /// The contents that the file had.
    pub fn newest(&self) -> Option<&(Note, Checkpoint)> {
        self.newest.as_ref()
    }

    /// Replaces it, so that the new text appears whole and is on disk.
    pub fn replace(self, note: &Note) -> Result<()> {
        write_whole(&self.path, note.to_string().as_bytes())
    }
}

impl Drop for HeldCheckpoint {
    /// Takes the file away again that was made only to be locked. Who waits for it sees that, and makes another.
    fn drop(&mut self) {
        let is_empty = || std::fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() == 0);
        if self.newest.is_none() && is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
