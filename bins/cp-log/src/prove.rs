//! `cp-log prove`: the proof that a line is in a ledger, or that a ledger goes on from an earlier size, for those who have neither.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::proof::checkpoint::checkpoint_path;
use cp_ledger::proof::tree::inclusion;
use serde::Serialize;

use crate::ledger::LedgerOption;
use crate::proofs::{hashes, newest, request_text};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "prove",
    class: Class::Query,
    output: "proof",
    examples: &["{} append hello && {} keygen P && {} checkpoint --key P && {} prove 1"],
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
    let (note, checkpoint) = newest(&checkpoint_path(&ledger))?;
    let (of, proof) = match (args.consistency, args.seq) {
        (Some(old), _) => (old, request_text(&ledger, &note, &checkpoint, old)?),
        (None, Some(seq)) => {
            if seq >= checkpoint.size {
                return Err(Error::not_found(format!(
                    "line {seq} is not covered by the checkpoint of {} lines",
                    checkpoint.size
                ))
                .hint("sign a new one with cp-log checkpoint"));
            }
            let hashes = hashes(&ledger, &checkpoint, inclusion(seq, checkpoint.size))?;
            let lines: String = hashes.iter().map(|hash| BASE64.encode(hash) + "\n").collect();
            (seq, format!("c2sp.org/tlog-proof@v1\nindex {seq}\n{lines}\n{note}"))
        }
        (None, None) => return Err(Error::usage("give the number of a line, or --consistency")),
    };
    context.out.answer(&Proved { origin: checkpoint.origin, size: checkpoint.size, of, proof })
}
