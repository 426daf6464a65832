//! What a ledger comes to now, and proofs against its newest checkpoint: what `checkpoint` sends to witnesses and `prove` prints.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Code, Error, Result};
use cp_ledger::proof::checkpoint::read_checkpoint;
use cp_ledger::proof::leaves::{each_line, files_of, grow};
use cp_ledger::proof::note::{Checkpoint, Note};
use cp_ledger::proof::tree::{Node, Ranges, Tree, consistency, leaf};

/// The first line of a proof.
pub(crate) const PROOF: &str = "c2sp.org/tlog-proof@v1";

/// The newest checkpoint, which must be there.
pub(crate) fn newest(path: &Path) -> Result<(Note, Checkpoint)> {
    read_checkpoint(path)?
        .ok_or_else(|| Error::not_found("there is no checkpoint").in_file(path).hint("make one with cp-log checkpoint"))
}

/// What is to be signed of a ledger as it is now, and the key that its line 0 names. Refused unless it goes on from each of the earlier
/// checkpoints.
pub(crate) fn current(files: &[PathBuf], before: &[&Checkpoint]) -> Result<(Checkpoint, Option<String>)> {
    let mut roots = vec![None; before.len()];
    let (walked, tree) = grow(files, |tree| {
        for (before, root) in before.iter().zip(&mut roots) {
            if before.size == tree.size() {
                *root = Some(tree.root());
            }
        }
    })?;
    if let Some(before) = before.iter().find(|before| before.size < walked.absent && before.origin == walked.origin) {
        let message =
            format!("the {} lines that were signed before end in a closed segment that is absent", before.size);
        return Err(Error::not_found(message)
            .in_file(files.last().map_or(Path::new(""), PathBuf::as_path))
            .hint("put it back beside the ledger, sign, and then take it away"));
    }
    let checkpoint = Checkpoint { origin: walked.origin, size: tree.size(), root: tree.root() };
    let is_other = |(before, root): &(&&Checkpoint, &Option<Node>)| {
        before.origin != checkpoint.origin || **root != Some(before.root)
    };
    if let Some((before, _)) = before.iter().zip(&roots).find(is_other) {
        let message =
            format!("the ledger does not go on from its checkpoint of {} lines: nothing is signed", before.size);
        return Err(Error::new(Code::Integrity, message)
            .in_file(files.last().map_or(Path::new(""), PathBuf::as_path))
            .hint("cp-log verify shows whether it was rolled back or forked"));
    }
    Ok((checkpoint, walked.signer))
}

/// A proof as text, with what is signed below it (c2sp.org/tlog-proof).
pub(crate) fn proof_text(extra: Option<&str>, index: u64, hashes: &[Node], signed: &str) -> String {
    let extra = extra.map_or(String::new(), |extra| format!("extra {}\n", BASE64.encode(extra)));
    let hashes: String = hashes.iter().map(|hash| BASE64.encode(hash) + "\n").collect();
    format!("{PROOF}\n{extra}index {index}\n{hashes}\n{signed}")
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
        each_line(&files_of(ledger)?, |line| {
            let leaf = leaf(&line.hash().raw());
            parts.push(leaf);
            tree.push(leaf);
            Ok(if tree.size() == checkpoint.size { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    if tree.size() != checkpoint.size || tree.root() != checkpoint.root {
        return Err(Error::new(Code::Integrity, "the ledger is not the one that was signed").in_file(ledger));
    }
    Ok(parts.hashes())
}
