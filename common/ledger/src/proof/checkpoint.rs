//! The checkpoint beside a ledger: `X.checkpoint` beside `X.jsonl`.

use std::path::{Path, PathBuf};

use cp_common::home::write_whole;
use cp_common::{Code, Error, Result};

use super::note::{Checkpoint, Note};

/// Where a ledger's checkpoint is: `X.checkpoint` beside `X.jsonl`.
pub fn checkpoint_path(ledger: &Path) -> PathBuf {
    let name = ledger.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ledger.with_file_name(format!("{}.checkpoint", name.strip_suffix(".jsonl").unwrap_or(&name)))
}

/// Reads a checkpoint. `None` if there is no such file.
pub fn read_checkpoint(path: &Path) -> Result<Option<(Note, Checkpoint)>> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| Error::io("cannot read the checkpoint", e).in_file(path))?,
    };
    let read = Note::parse(&text).and_then(|note| Checkpoint::parse(&note.text).map(|checkpoint| (note, checkpoint)));
    read.map(Some).ok_or_else(|| Error::new(Code::Integrity, "not a checkpoint").in_file(path))
}

/// Writes a checkpoint so that it appears whole.
pub fn write_checkpoint(path: &Path, note: &Note) -> Result<()> {
    let path = std::path::absolute(path).map_err(|e| Error::io("cannot write the checkpoint", e).in_file(path))?;
    write_whole(&path, note.to_string().as_bytes())
}
