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
use cp_ledger::proof::bound::Member;
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::proof::tree::{Node, leaf, parse_node, root_of_inclusion};
use serde::Serialize;

use crate::prove::PROOF;
use crate::reading::without_mark;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "check-proof",
    class: Class::Query,
    output: "checked",
    also: &["summary"],
    examples: &[
        "{} append -f l.jsonl hello && {} keygen Q && {} checkpoint -f l.jsonl --sign-with Q && {} prove 1 -f l.jsonl --format raw > p && sed -n 2p l.jsonl | {} check-proof --trust Q.pub p",
    ],
    input: &[Input::Text, Input::Records],
    ..VerbDoc::EMPTY
};

/// Say whether the lines on standard input are what a proof proves
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The public key of the ledger's signer
    #[arg(long = "trust", alias = "key", value_name = "KEY")]
    key: PathBuf,
    /// The ledger that the proof must be about, as its checkpoint names it
    #[arg(long = "ledger-name", alias = "name", value_name = "NAME")]
    name: Option<String>,
    /// The public key of a witness that must have signed, too (repeatable)
    #[arg(long = "witness", value_name = "KEY")]
    witnesses: Vec<PathBuf>,
    /// How many of the witnesses must have signed (default: all)
    #[arg(long, value_name = "N", requires = "witnesses", value_parser = clap::value_parser!(u16).range(1..))]
    quorum: Option<u16>,
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
    /// The bound of many ledgers that was signed, where the proof goes through one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<String>,
    /// Why not.
    reason: Option<&'static str>,
    /// The witnesses whose signatures are right.
    cosigned_by: Vec<String>,
    /// The names in signatures that were not required, and are not verified.
    not_looked_at: Vec<String>,
}

impl Reply for Checked {
    fn text(&self) -> String {
        self.reason.map_or_else(|| "yes".to_owned(), |reason| format!("no: {reason}"))
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let requirements = Requirements::of(args)?;
    let proof = Proof::load(&args.proof, &requirements)?;
    filter::run(
        &mut Check { proof, strict: args.stream.strict_exit, objection: None, has_proved: false },
        Source::Input,
        args.stream,
        context,
    )
}

/// The requirements on a proof beside a line's place.
struct Requirements {
    key: Verifier,
    origin: Option<String>,
    witnesses: Vec<Verifier>,
    quorum: usize,
}

impl Requirements {
    fn of(args: &Args) -> Result<Self> {
        let mut witnesses: Vec<Verifier> = Vec::new();
        for path in &args.witnesses {
            let witness = Verifier::load(path)?.as_witness();
            if witnesses.iter().any(|there| there.to_text() == witness.to_text()) {
                return Err(Error::usage(format!("the witness {} is given twice", witness.name())).in_file(path));
            }
            witnesses.push(witness);
        }
        let quorum = args.quorum.map_or(witnesses.len(), usize::from);
        if quorum > witnesses.len() {
            let message = format!("--quorum {quorum} is more than the {} witnesses", witnesses.len());
            return Err(Error::usage(message).hint("give --witness once for each"));
        }
        Ok(Self { key: Verifier::load(&args.key)?, origin: args.name.clone(), witnesses, quorum })
    }

    /// Fails unless all of it is there and right. Returns the witnesses that signed.
    fn meet(&self, note: &Note, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let refuse = |message: String| Err(Error::new(Code::Integrity, message));
        match note.is_signed_by(&self.key) {
            Some(true) => {}
            Some(false) => return refuse("the checkpoint's signature is wrong".to_owned()),
            None => return refuse(format!("the checkpoint is not signed by {}", self.key.name())),
        }
        if let Some(origin) = self.origin.as_ref().filter(|origin| **origin != checkpoint.origin) {
            return refuse(format!("the proof is about {}, not {origin}", checkpoint.origin));
        }
        let mut signed = Vec::new();
        for witness in &self.witnesses {
            match note.is_signed_by(witness) {
                Some(true) => signed.push(witness.name().to_owned()),
                Some(false) => return refuse(format!("the signature of the witness {} is wrong", witness.name())),
                None => {}
            }
        }
        if signed.len() < self.quorum {
            return refuse(format!("{} of the {} witnesses that are needed signed", signed.len(), self.quorum));
        }
        Ok(signed)
    }
}

/// A proof whose checkpoint's signature is right.
struct Proof {
    index: u64,
    hashes: Vec<Node>,
    /// Of the ledger; signed itself, unless the bound is.
    checkpoint: Checkpoint,
    /// The name of the bound that the proof goes through, and whether the ledger is in it.
    bound: Option<(String, bool)>,
    cosigned_by: Vec<String>,
    not_looked_at: Vec<String>,
}

/// The parts of a proof.
struct Parts<'a> {
    extra: Option<&'a str>,
    index: u64,
    hashes: Vec<Node>,
    /// The text below the blank line.
    signed: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (head, signed) = text.split_once("\n\n")?;
        let mut lines = head.split('\n').peekable();
        if lines.next()? != PROOF {
            return None;
        }
        let extra = lines.next_if(|line| line.starts_with("extra ")).and_then(|line| line.strip_prefix("extra "));
        let number = lines.next()?.strip_prefix("index ")?;
        let index: u64 = number.parse().ok().filter(|index: &u64| index.to_string() == number)?;
        let hashes: Option<Vec<Node>> = lines.map(parse_node).collect();
        Some(Self { extra, index, hashes: hashes?, signed })
    }
}

impl Proof {
    fn load(path: &Path, requirements: &Requirements) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("no such proof").in_file(path),
            _ => Error::io("cannot read the proof", e).in_file(path),
        })?;
        let (note, mut proof) = Self::parse(&text).ok_or_else(|| Error::validation("not a proof").in_file(path))?;
        proof.cosigned_by = requirements.meet(&note, &proof.checkpoint).map_err(|e| e.in_file(path))?;
        let known: Vec<&Verifier> = requirements.witnesses.iter().chain([&requirements.key]).collect();
        proof.not_looked_at = note.others(&known);
        Ok(proof)
    }

    fn parse(text: &str) -> Option<(Note, Self)> {
        let Parts { extra, index, hashes, signed } = Parts::of(text)?;
        let note = Note::parse(signed)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        let (cosigned_by, not_looked_at) = (Vec::new(), Vec::new());
        let plain = Self { index, hashes, checkpoint, bound: None, cosigned_by, not_looked_at };
        // Other extension lines are ignored, because they prove nothing here.
        let inner = extra.and_then(|extra| String::from_utf8(BASE64.decode(extra).ok()?).ok());
        match inner.filter(|inner| inner.starts_with(PROOF)) {
            Some(inner) => Some((note, plain.through(&inner)?)),
            None => Some((note, plain)),
        }
    }

    /// The proof of a line in a ledger whose place in a bound this is the proof of.
    fn through(self, inner: &str) -> Option<Self> {
        let Parts { index, hashes, signed, extra: None } = Parts::of(inner)? else { return None };
        let member = Member::parse(signed)?;
        let root = root_of_inclusion(member.leaf(), self.index, self.checkpoint.size, &self.hashes);
        let bound = Some((self.checkpoint.origin, root == Some(self.checkpoint.root)));
        Some(Self { index, hashes, checkpoint: member.checkpoint, bound, ..self })
    }

    /// Why a line is not the one that is proved, if it is not.
    fn objection(&self, bytes: &[u8]) -> Option<&'static str> {
        if matches!(self.bound, Some((_, false))) {
            return Some("the ledger is not in the bound that was signed");
        }
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
        self.has_proved |= reason.is_none();
        self.objection = reason;
        let proof = &self.proof;
        let checked = Checked {
            proved: reason.is_none(),
            seq: proof.index,
            origin: proof.checkpoint.origin.clone(),
            bound: proof.bound.as_ref().map(|(origin, _)| origin.clone()),
            reason,
            cosigned_by: proof.cosigned_by.clone(),
            not_looked_at: proof.not_looked_at.clone(),
        };
        context.out.record(Kind::Item, &checked)
    }

    /// Fails if no line of the input is proved.
    fn finish(&mut self, _: &mut Context) -> Result<()> {
        match self.objection {
            Some(reason) if !self.has_proved => {
                Err(Error::new(Code::Integrity, format!("no line is proved: {reason}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::proof_text;
    use cp_ledger::format::line::{Hash, compose};
    use cp_ledger::proof::bound::Bound;
    use cp_ledger::proof::note::Signer;
    use cp_ledger::proof::tree::{Ranges, Tree, inclusion};

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

    /// The proof of the fourth line, signed by three keys.
    fn proof(signers: &[Signer; 3]) -> (Vec<u8>, String) {
        let (fourth, checkpoint, hashes) = fourth_of_seven();
        let mut note = signers[0].sign(&checkpoint.to_text());
        signers[1..].iter().for_each(|signer| note.add(&signer.cosign(&checkpoint.to_text(), 1_679_315_147)));
        (fourth, proof_text(None, 3, &hashes, &note.to_string()))
    }

    /// The same line, proved through a bound of three ledgers.
    fn bound_proof(signer: &Signer) -> (Vec<u8>, String) {
        let (fourth, checkpoint, hashes) = fourth_of_seven();
        let members = ["example.com/a", "example.com/log", "example.com/z"].map(|origin| {
            let checkpoint = Checkpoint { origin: origin.into(), ..checkpoint.clone() };
            Member::new(checkpoint, Path::new("l.jsonl")).unwrap()
        });
        let inner = proof_text(None, 3, &hashes, &members[1].to_text());
        let bound = Bound::sign(members.to_vec(), signer);
        (fourth, proof_text(Some(&inner), 1, &bound.proof(1), &bound.note().to_string()))
    }

    fn passes(proof: &[u8], line: &[u8], requirements: &Requirements) -> bool {
        let parsed = std::str::from_utf8(proof).ok().and_then(Proof::parse);
        parsed.is_some_and(|(note, proof)| {
            proof.objection(line).is_none() && requirements.meet(&note, &proof.checkpoint).is_ok()
        })
    }

    #[test]
    fn check_proof_detects_every_changed_byte() {
        let signers = [("K", 1), ("W", 2), ("X", 3)].map(|(name, seed)| Signer::new(name, &[seed; 32]));
        let (line, proof) = proof(&signers);
        let witnesses = signers[1..].iter().map(|signer| signer.verifier().as_witness()).collect();
        let origin = Some("example.com/log".to_owned());
        let all = Requirements { key: signers[0].verifier(), origin, witnesses, quorum: 2 };
        assert!(passes(proof.as_bytes(), &line, &all));
        for at in 0..proof.len() {
            let mut changed = proof.clone().into_bytes();
            changed[at] ^= if at % 2 == 0 { 0x01 } else { 0x20 };
            assert!(!passes(&changed, &line, &all), "byte {at} of {proof}");
        }
        // The signature of a witness that is not required is only named.
        let one = Requirements { witnesses: Vec::new(), quorum: 0, ..all };
        let last = proof.len() - 10;
        let changed = format!("{}A{}", &proof[..last], &proof[last + 1..]);
        assert!(passes(changed.as_bytes(), &line, &one));
        let (note, _) = Proof::parse(&changed).unwrap();
        assert_eq!(note.others(&[&one.key]), ["W", "X"]);
    }

    #[test]
    fn check_proof_detects_every_changed_byte_of_a_bound_proof() {
        let signer = Signer::new("K", &[1; 32]);
        let (line, proof) = bound_proof(&signer);
        let origin = Some("example.com/log".to_owned());
        let all = Requirements { key: signer.verifier(), origin, witnesses: Vec::new(), quorum: 0 };
        assert!(passes(proof.as_bytes(), &line, &all));
        for at in 0..proof.len() {
            for bits in [0x01, 0x20] {
                let mut changed = proof.clone().into_bytes();
                changed[at] ^= bits;
                assert!(!passes(&changed, &line, &all), "byte {at} of {proof}");
            }
        }
        // Nor does one of the inner proof, spelt as it should be.
        let extra = proof.lines().find_map(|line| line.strip_prefix("extra ")).unwrap();
        let inner = BASE64.decode(extra).unwrap();
        let with = |inner: &[u8]| proof.replace(extra, &BASE64.encode(inner));
        assert!(passes(with(&inner).as_bytes(), &line, &all));
        for at in 0..inner.len() {
            for bits in [0x01, 0x20] {
                let mut changed = inner.clone();
                changed[at] ^= bits;
                assert!(!passes(with(&changed).as_bytes(), &line, &all), "byte {at} of {}", inner.escape_ascii());
            }
            assert!(!passes(with(&inner[..at]).as_bytes(), &line, &all), "cut at {at}");
        }
        // The required name is that of the line's ledger, not of the bound.
        let other = Requirements { origin: Some("example.com/z".into()), ..all };
        assert!(!passes(proof.as_bytes(), &line, &other));
    }
}
