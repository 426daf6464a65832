//! `cp-log prove`: the proof that a line is in a ledger, or that a ledger goes on from an earlier size, for those who have neither.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::bound::Bound;
use cp_ledger::proof::checkpoint::{checkpoint_path, read_checkpoint};
use cp_ledger::proof::leaves::{each_line, files_of, grow, origin_of};
use cp_ledger::proof::note::{Checkpoint, Note};
use cp_ledger::proof::tree::{Node, Ranges, Tree, consistency, inclusion, leaf};
use serde::Serialize;

use crate::ledger::LedgerOption;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "prove",
    class: Class::Query,
    output: "proof",
    examples: &["{} append hello && {} keygen P && {} checkpoint --sign-with P && {} prove 1"],
    ..VerbDoc::EMPTY
};

/// Prove a line, or the growth of the ledger, against the newest checkpoint or a bound
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    /// Prove that the ledger goes on where it ended with so many lines
    #[arg(long, value_name = "M", conflicts_with = "seq")]
    consistency: Option<u64>,
    /// Prove the line against this bound of many ledgers, not the ledger's own checkpoint
    #[arg(long, value_name = "FILE", conflicts_with = "consistency")]
    bound: Option<PathBuf>,
    /// The number of the line
    #[arg(value_name = "SEQ", required_unless_present = "consistency")]
    seq: Option<u64>,
}

/// The proved line and its proof.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Proved {
    /// The origin of the ledger.
    origin: String,
    /// How many lines the checkpoint covers.
    size: u64,
    /// The number of the line, or how many lines there were.
    of: u64,
    /// The proof itself, with the checkpoint: what `--format raw` prints.
    proof: String,
}

impl Reply for Proved {
    fn text(&self) -> String {
        self.proof.trim_end().to_owned()
    }

    fn raw(&self) -> Vec<u8> {
        self.proof.clone().into_bytes()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let ledger = args.ledger.path(context);
    let proved = match (args.consistency, args.seq, &args.bound) {
        (None, Some(seq), Some(bound)) => by_bound(&ledger, seq, bound)?,
        (Some(old), ..) => {
            let (note, checkpoint) = newest(&checkpoint_path(&ledger))?;
            proved(&checkpoint, old, request_text(&ledger, &note, &checkpoint, old)?)
        }
        (None, Some(seq), None) => {
            let (note, checkpoint) = newest(&checkpoint_path(&ledger))?;
            let hashes = line(&ledger, seq, &checkpoint, "sign a new one with cp-log checkpoint")?;
            proved(&checkpoint, seq, proof_text(None, seq, &hashes, &note.to_string()))
        }
        (None, None, _) => return Err(Error::usage("give the number of a line, or --consistency")),
    };
    context.out.answer(&proved)
}

fn proved(checkpoint: &Checkpoint, of: u64, proof: String) -> Proved {
    Proved { origin: checkpoint.origin.clone(), size: checkpoint.size, of, proof }
}

/// The hashes that lead from a line to the root of a checkpoint.
fn line(ledger: &Path, seq: u64, checkpoint: &Checkpoint, hint: &str) -> Result<Vec<Node>> {
    if seq >= checkpoint.size {
        let message = format!("line {seq} is not covered by the checkpoint of {} lines", checkpoint.size);
        return Err(Error::not_found(message).hint(hint));
    }
    hashes(ledger, checkpoint, inclusion(seq, checkpoint.size))
}

/// The proof of a line in its ledger, inside the proof of the ledger in the bound.
fn by_bound(ledger: &Path, seq: u64, path: &Path) -> Result<Proved> {
    let bound = Bound::load(path)?;
    let not_a_ledger = || Error::validation("not a ledger: it has no opening line").in_file(ledger);
    let origin = origin_of(&files_of(ledger)?[0])?.ok_or_else(not_a_ledger)?;
    let Some((index, member)) = bound.find(&origin) else {
        let message = format!("the ledger {origin} is not in the bound {}", path.display());
        return Err(Error::not_found(message).in_file(ledger).hint("bind it with cp-log bind"));
    };
    let hashes = line(ledger, seq, &member.checkpoint, "bind the ledger as it is now with cp-log bind")?;
    let inner = proof_text(None, seq, &hashes, &member.to_text());
    let whole = proof_text(Some(&inner), index, &bound.proof(index), &bound.note().to_string());
    Ok(proved(&member.checkpoint, seq, whole))
}

/// The first line of a proof.
pub(crate) const PROOF: &str = "c2sp.org/tlog-proof@v1";

/// The newest checkpoint, which must be there.
pub(crate) fn newest(path: &Path) -> Result<(Note, Checkpoint)> {
    read_checkpoint(path)?
        .ok_or_else(|| Error::not_found("no such checkpoint").in_file(path).hint("make one with cp-log checkpoint"))
}

/// The checkpoint to sign of a ledger as it is now, and the key that its line 0 names. Refused unless it continues each of the earlier
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
