//! `cp-log prove`: the proof that a line is in a ledger, or that a ledger goes on from an earlier size, for those who have neither.

use std::path::{Path, PathBuf};

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::proof::bound::Bound;
use cp_ledger::proof::checkpoint::checkpoint_path;
use cp_ledger::proof::leaves::{files_of, origin_of};
use cp_ledger::proof::note::Checkpoint;
use cp_ledger::proof::tree::{Node, inclusion};
use serde::Serialize;

use crate::ledger::LedgerOption;
use crate::proofs::{hashes, newest, proof_text, request_text};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "prove",
    class: Class::Query,
    output: "proof",
    examples: &["{} append hello && {} keygen P && {} checkpoint --key P && {} prove 1"],
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

/// What was proved, and the proof.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Proved {
    /// Which ledger it is about.
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
