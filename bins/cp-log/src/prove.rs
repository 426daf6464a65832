//! `cp-log prove`: the proof that a line is in a ledger, or that a ledger goes on from an earlier size, for those who have neither.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::checkpoint::{checkpoint_path, read_checkpoint};
use cp_ledger::proof::leaves::{each_line, files_of};
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

/// Prove a line, or the growth of the ledger, against the newest checkpoint
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    /// Prove that the ledger goes on where it ended with so many lines
    #[arg(long, value_name = "M", conflicts_with = "seq")]
    consistency: Option<u64>,
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
    let path = checkpoint_path(&ledger);
    let (note, checkpoint) = read_checkpoint(&path)?
        .ok_or_else(|| Error::not_found("no such checkpoint").in_file(&path).hint("make one with cp-log checkpoint"))?;
    let (of, proof) = match (args.consistency, args.seq) {
        (Some(old), _) => (old, growth_proof(&ledger, &note, &checkpoint, old)?),
        (None, Some(seq)) => (seq, line_proof(&ledger, &note, &checkpoint, seq)?),
        (None, None) => return Err(Error::usage("give the number of a line, or --consistency")),
    };
    context.out.answer(&Proved { origin: checkpoint.origin, size: checkpoint.size, of, proof })
}

/// The first line of a proof.
pub(crate) const PROOF: &str = "c2sp.org/tlog-proof@v1";

/// The proof that a line is in the tree of a checkpoint (c2sp.org/tlog-proof).
fn line_proof(ledger: &Path, note: &Note, checkpoint: &Checkpoint, seq: u64) -> Result<String> {
    if seq >= checkpoint.size {
        let message = format!("line {seq} is not covered by the checkpoint of {} lines", checkpoint.size);
        return Err(Error::not_found(message).hint("sign a new one with cp-log checkpoint"));
    }
    let hashes = hashes(ledger, checkpoint, inclusion(seq, checkpoint.size))?;
    Ok(proof_text(seq, &hashes, &note.to_string()))
}

/// The text of a proof that a line is in the tree of a signed checkpoint.
pub(crate) fn proof_text(seq: u64, hashes: &[Node], signed: &str) -> String {
    format!("{PROOF}\nindex {seq}\n{}\n{signed}", lines_of(hashes))
}

/// The proof that a ledger's newest checkpoint goes on from `old` lines, in the format of a request to a witness (c2sp.org/tlog-witness).
fn growth_proof(ledger: &Path, note: &Note, checkpoint: &Checkpoint, old: u64) -> Result<String> {
    if old > checkpoint.size {
        return Err(Error::validation(format!("{old} is more than the {} lines of the checkpoint", checkpoint.size)));
    }
    let hashes = hashes(ledger, checkpoint, consistency(old, checkpoint.size))?;
    Ok(format!("old {old}\n{}\n{note}", lines_of(&hashes)))
}

fn lines_of(hashes: &[Node]) -> String {
    hashes.iter().map(|hash| BASE64.encode(hash) + "\n").collect()
}

/// The hashes of ranges of a ledger's leaves, after proving that the ledger has the checkpoint's root.
fn hashes(ledger: &Path, checkpoint: &Checkpoint, ranges: Vec<Range<u64>>) -> Result<Vec<Node>> {
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
