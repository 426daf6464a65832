//! Proofs against the newest checkpoint of a ledger: what `checkpoint` sends to witnesses and `prove` prints.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Code, Error, Result};
use cp_ledger::proof::checkpoint::read_checkpoint;
use cp_ledger::proof::leaves::walk;
use cp_ledger::proof::note::{Checkpoint, Note};
use cp_ledger::proof::tree::{Node, Ranges, Tree, consistency};

/// The newest checkpoint, which must be there.
pub(crate) fn newest(path: &Path) -> Result<(Note, Checkpoint)> {
    read_checkpoint(path)?
        .ok_or_else(|| Error::not_found("there is no checkpoint").in_file(path).hint("make one with cp-log checkpoint"))
}

/// The proof that a ledger's newest checkpoint goes on from `old` lines, in the format of a request to a witness.
pub(crate) fn request_text(ledger: &Path, note: &Note, checkpoint: &Checkpoint, old: u64) -> Result<String> {
    if old > checkpoint.size {
        return Err(Error::validation(format!("{old} is more than the {} lines of the checkpoint", checkpoint.size)));
    }
    let hashes = hashes(ledger, checkpoint, consistency(old, checkpoint.size))?;
    let proof: String = hashes.iter().map(|hash| BASE64.encode(hash) + "\n").collect();
    Ok(format!("old {old}\n{proof}\n{note}"))
}

/// The hashes of ranges of a ledger's leaves, after proving that the ledger has the checkpoint's root.
pub(crate) fn hashes(ledger: &Path, checkpoint: &Checkpoint, ranges: Vec<Range<u64>>) -> Result<Vec<Node>> {
    let (mut parts, mut tree) = (Ranges::new(ranges), Tree::default());
    if checkpoint.size > 0 {
        walk(ledger, |leaf| {
            parts.push(leaf);
            tree.push(leaf);
            if tree.size() == checkpoint.size { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    if tree.size() != checkpoint.size || tree.root() != checkpoint.root {
        return Err(Error::new(Code::Integrity, "the ledger is not the one that was signed").in_file(ledger));
    }
    Ok(parts.hashes())
}
