//! `cp-log prove`: the proof that a line is in a ledger, for those who do not have it. And `check-proof`, which needs
//! the proof and the public key, not the ledger.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::given::unreadable;
use cp_common::context::options::StreamOptions;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Line;
use cp_ledger::proof::leaves::{each_line, files_of};
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::proof::note::{checkpoint_path, read_checkpoint};
use cp_ledger::proof::tree::{Node, Ranges, Tree, inclusion, leaf, parse_node, root_of_inclusion};
use serde::Serialize;

use crate::ledger::{self, LedgerOption};
use crate::reading::without_mark;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["{} append hello && {} keygen P && {} checkpoint --sign-with P && {} prove 1"],
    ..VerbDoc::new("prove", Class::Query, "proof")
};

/// Prove a line against the newest checkpoint
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    /// The number of the line
    #[arg(value_name = "SEQ")]
    seq: u64,
}

/// The proved line and its proof.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Proved {
    /// The origin of the ledger.
    origin: String,
    /// How many lines the checkpoint covers.
    size: u64,
    /// The number of the line.
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
    let ledger = ledger::path_to_read(args.ledger.file.as_deref(), context)?;
    let path = checkpoint_path(&ledger);
    let (note, checkpoint) = read_checkpoint(&path)?
        .ok_or_else(|| Error::not_found("no such checkpoint").in_file(&path).hint("make one with cp-log checkpoint"))?;
    let proof = line_proof(&ledger, &note, &checkpoint, args.seq)?;
    context.out.answer(&Proved { origin: checkpoint.origin, size: checkpoint.size, of: args.seq, proof })
}

/// The first line of a proof.
const PROOF: &str = "c2sp.org/tlog-proof@v1";

/// The proof that a line is in the tree of a checkpoint (c2sp.org/tlog-proof), after proving that the ledger has its root.
fn line_proof(ledger: &Path, note: &Note, checkpoint: &Checkpoint, seq: u64) -> Result<String> {
    if seq >= checkpoint.size {
        let message = format!("line {seq} is not covered by the checkpoint of {} lines", checkpoint.size);
        return Err(Error::not_found(message).hint("sign a new one with cp-log checkpoint"));
    }
    let (mut parts, mut tree) = (Ranges::new(inclusion(seq, checkpoint.size)), Tree::default());
    each_line(&files_of(ledger)?, |line| {
        let leaf = leaf(&line.hash().raw());
        parts.push(leaf);
        tree.push(leaf);
        Ok(if tree.size() == checkpoint.size { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if tree.size() != checkpoint.size || tree.root() != checkpoint.root {
        return Err(Error::new(Code::Integrity, "the ledger is not the one that was signed").in_file(ledger));
    }
    Ok(proof_text(seq, &parts.hashes(), &note.to_string()))
}

/// The text of a proof that a line is in the tree of a signed checkpoint.
fn proof_text(seq: u64, hashes: &[Node], signed: &str) -> String {
    let hashes: String = hashes.iter().map(|hash| BASE64.encode(hash) + "\n").collect();
    format!("{PROOF}\nindex {seq}\n{hashes}\n{signed}")
}

/// The entry of this verb in `reference`.
pub(crate) const CHECK_DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &[
        "{} append -f l.jsonl hello && {} keygen Q && {} checkpoint -f l.jsonl --sign-with Q && {} prove 1 -f l.jsonl --format raw > p && sed -n 2p l.jsonl | {} check-proof --trust Q.pub p",
    ],
    input: &[Input::Text, Input::Records],
    ..VerbDoc::new("check-proof", Class::Query, "checked")
};

/// Say whether the lines on the input are what a proof proves
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The public key of the ledger's signer
    #[arg(long = "trust", value_name = "KEY")]
    key: PathBuf,
    /// The ledger that the proof must be about, as its checkpoint names it
    #[arg(long = "ledger-name", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    stream: StreamOptions,
    /// The proof
    #[arg(value_name = "FILE")]
    proof: PathBuf,
}

/// The result of checking one line.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Checked {
    /// True if the line is proved.
    proved: bool,
    /// The number that the proof is about.
    seq: u64,
    /// The origin of its ledger.
    origin: String,
    /// Why not.
    reason: Option<&'static str>,
}

impl Reply for Checked {
    fn text(&self) -> String {
        self.reason.map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}"))
    }
}

pub(crate) fn check_proof(args: &CheckArgs, context: &mut Context) -> Result<()> {
    let key = Verifier::load(&args.key)?;
    let text = std::fs::read_to_string(&args.proof).map_err(|e| unreadable(e, "proof", &args.proof))?;
    let proof = Proof::parse(&text).ok_or_else(|| Error::validation("not a proof").in_file(&args.proof))?;
    proof.validate(&key, args.name.as_deref()).map_err(|e| e.in_file(&args.proof))?;
    filter::run(
        &mut Check { proof, strict: args.stream.strict_exit, objection: None, has_proved: false },
        Source::Input,
        args.stream,
        context,
    )
}

/// A proof that a line is in the tree of a signed checkpoint.
struct Proof {
    index: u64,
    hashes: Vec<Node>,
    note: Note,
    checkpoint: Checkpoint,
}

impl Proof {
    fn parse(text: &str) -> Option<Self> {
        let (head, note) = text.split_once("\n\n")?;
        let mut lines = head.split('\n').peekable();
        if lines.next()? != PROOF {
            return None;
        }
        // An extension proves nothing here.
        lines.next_if(|line| line.starts_with("extra "));
        let number = lines.next()?.strip_prefix("index ")?;
        let index: u64 = number.parse().ok().filter(|index: &u64| index.to_string() == number)?;
        let hashes: Option<Vec<Node>> = lines.map(parse_node).collect();
        let note = Note::parse(note)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        Some(Self { index, hashes: hashes?, note, checkpoint })
    }

    /// Fails unless the key signed the checkpoint, which is that of the ledger with this origin.
    fn validate(&self, key: &Verifier, origin: Option<&str>) -> Result<()> {
        let actual = &self.checkpoint.origin;
        let message = match (self.note.is_signed_by(key), origin.filter(|origin| origin != actual)) {
            (Some(true), None) => return Ok(()),
            (Some(true), Some(origin)) => format!("the proof is about {actual}, not {origin}"),
            (Some(false), _) => "the checkpoint's signature is wrong".to_owned(),
            (None, _) => format!("the checkpoint is not signed by {}", key.name()),
        };
        Err(Error::new(Code::Integrity, message))
    }

    /// Why a line is not the one that is proved, if it is not.
    fn objection(&self, bytes: &[u8]) -> Option<&'static str> {
        let Some(line) = Line::parse(bytes) else { return Some("not the shape of a line") };
        if !line.is_intact() {
            return Some("the bytes are not those that were hashed");
        }
        if line.seq() != self.index {
            return Some("the proof is about another line");
        }
        let root = root_of_inclusion(leaf(&line.hash().raw()), self.index, self.checkpoint.size, &self.hashes);
        (root != Some(self.checkpoint.root)).then_some("the line is not in the tree that was signed")
    }
}

struct Check {
    proof: Proof,
    strict: bool,
    /// Why the last line is not the one that is proved, until one is.
    objection: Option<&'static str>,
    has_proved: bool,
}

impl Filter for Check {
    fn accepts(&self) -> &'static [Kind] {
        &[]
    }

    fn takes_lines(&self) -> bool {
        true
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let line = match &body {
            Body::Text(text) => text.to_vec(),
            Body::Row(row) => without_mark(row.get().as_bytes()),
            Body::Record(record) => record.data.map_or_else(Vec::new, |data| without_mark(data.get().as_bytes())),
        };
        let reason = self.proof.objection(&line);
        if let (Some(reason), true) = (reason, self.strict) {
            return Err(Error::new(Code::Integrity, format!("not proved: {reason}")));
        }
        self.has_proved |= reason.is_none();
        if reason.is_some() {
            context.out.item_skipped();
        }
        self.objection = reason;
        let proof = &self.proof;
        let checked =
            Checked { proved: reason.is_none(), seq: proof.index, origin: proof.checkpoint.origin.clone(), reason };
        context.out.record(Kind::Item, &checked)
    }

    /// Fails if no line of the input is proved.
    fn finish(&mut self, _: &mut Context) -> Result<()> {
        let missed = self.objection.filter(|_| !self.has_proved);
        let fails = |reason| Err(Error::new(Code::Integrity, format!("no line is proved: {reason}")));
        missed.map_or(Ok(()), fails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::proof_text;
    use cp_ledger::format::line::{Hash, compose};
    use cp_ledger::proof::note::Signer;

    /// Seven lines: the fourth, what is to be signed, and the hashes that lead from the one to the other.
    fn fourth_of_seven() -> (Vec<u8>, Checkpoint, Vec<Node>) {
        let (mut tree, mut ranges, mut prev) = (Tree::default(), Ranges::new(inclusion(3, 7)), Hash::of(b""));
        let mut fourth = Vec::new();
        for seq in 0..7 {
            let mut line = Vec::new();
            prev = compose(seq, "2026-11-21T03:00:00.000000Z", b",\"event\":\"e\"", &prev, &mut line).unwrap();
            tree.push(leaf(&prev.raw()));
            ranges.push(leaf(&prev.raw()));
            if seq == 3 {
                fourth = line.trim_ascii().to_vec();
            }
        }
        (fourth, Checkpoint { origin: "example.com/log".into(), size: 7, root: tree.root() }, ranges.hashes())
    }

    #[test]
    fn check_proof_detects_every_changed_byte() {
        let signer = Signer::new("K", &[1; 32]);
        let (line, checkpoint, hashes) = fourth_of_seven();
        let proof = proof_text(3, &hashes, &signer.sign(&checkpoint.to_text()).to_string());
        let passes = |text: &[u8], origin: &str| {
            let proof = std::str::from_utf8(text).ok().and_then(Proof::parse);
            proof.is_some_and(|proof| {
                proof.objection(&line).is_none() && proof.validate(&signer.verifier(), Some(origin)).is_ok()
            })
        };
        assert!(passes(proof.as_bytes(), "example.com/log"));
        assert!(!passes(proof.as_bytes(), "example.com/z"));
        for at in 0..proof.len() {
            for bits in [0x01, 0x20] {
                let mut changed = proof.clone().into_bytes();
                changed[at] ^= bits;
                assert!(!passes(&changed, "example.com/log"), "byte {at} of {proof}");
            }
        }
    }
}
