//! `cp-log check-proof`: whether a line is the one that a proof is about. Needs the proof and the public key, not the ledger.

use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::options::StreamOptions;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source, Texts};
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Line;
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::proof::tree::{Node, leaf, root_of_inclusion};
use serde::Serialize;

use crate::reading::without_mark;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "check-proof",
    class: Class::Query,
    output: "checked",
    also: &["summary"],
    examples: &[
        "{} append -f l.jsonl hello && {} keygen Q && {} checkpoint -f l.jsonl --key Q && {} prove 1 -f l.jsonl --format raw > p && sed -n 2p l.jsonl | {} check-proof --key Q.pub p",
    ],
    input: &[Input::Text, Input::Records],
    ..VerbDoc::EMPTY
};

/// Say whether the lines on standard input are what a proof proves
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The public key of the ledger's signer
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
    #[command(flatten)]
    stream: StreamOptions,
    /// The proof
    #[arg(value_name = "FILE")]
    proof: PathBuf,
}

/// What a proof says of a line.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Checked {
    /// Whether the line is proved.
    proved: bool,
    /// The number that the proof is about.
    seq: u64,
    /// Which ledger it is in.
    origin: String,
    /// Why not.
    reason: Option<&'static str>,
}

impl Reply for Checked {
    fn text(&self) -> String {
        self.reason.map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}"))
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut check =
        Check { proof: Proof::load(&args.proof, &Verifier::load(&args.key)?)?, strict: args.stream.strict_exit };
    filter::run(&mut check, Source::Input, args.stream, context)
}

/// A proof whose checkpoint's signature is right.
struct Proof {
    index: u64,
    hashes: Vec<Node>,
    checkpoint: Checkpoint,
}

impl Proof {
    fn load(path: &Path, key: &Verifier) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("no such proof").in_file(path),
            _ => Error::io("cannot read the proof", e).in_file(path),
        })?;
        let (note, proof) = Self::parse(&text).ok_or_else(|| Error::validation("not a proof").in_file(path))?;
        match note.is_signed_by(key) {
            Some(true) => Ok(proof),
            Some(false) => Err(Error::new(Code::Integrity, "the checkpoint's signature is wrong").in_file(path)),
            None => {
                Err(Error::new(Code::Integrity, format!("the checkpoint is not signed by {}", key.name()))
                    .in_file(path))
            }
        }
    }

    fn parse(text: &str) -> Option<(Note, Self)> {
        let (head, note) = text.split_once("\n\n")?;
        let mut lines = head.split('\n').peekable();
        if lines.next()? != "c2sp.org/tlog-proof@v1" {
            return None;
        }
        lines.next_if(|line| line.starts_with("extra "));
        let number = lines.next()?.strip_prefix("index ")?;
        let index: u64 = number.parse().ok().filter(|index: &u64| index.to_string() == number)?;
        let hashes: Option<Vec<Node>> = lines.map(|line| BASE64.decode(line).ok()?.try_into().ok()).collect();
        let note = Note::parse(note)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        Some((note, Self { index, hashes: hashes?, checkpoint }))
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
}

impl Filter for Check {
    fn accepts(&self) -> &'static [Kind] {
        &[]
    }

    fn texts(&self) -> Texts {
        Texts::Lines
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
        let (seq, origin) = (self.proof.index, self.proof.checkpoint.origin.clone());
        context.out.record(Kind::Item, &Checked { proved: reason.is_none(), seq, origin, reason })
    }
}
