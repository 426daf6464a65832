//! One ledger of a bundle: its chain, its tree or its proofs, its checkpoint, its blobs.

use std::collections::HashSet;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::json;
use cp_ledger::format::line::{Hash, Line};
use cp_ledger::proof::FAULTS_LISTED;
use cp_ledger::proof::checkpoint::{Signed, signer_in};
use cp_ledger::proof::note::{Checkpoint, Note, Verifier};
use cp_ledger::proof::tree::{Node, Tree, is_consistent, leaf, parse_node, root_of_inclusion};
use cp_ledger::store::blob;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::format;

/// What the lines of one ledger prove.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Proved {
    /// The ledger's own name.
    pub(super) origin: String,
    /// The name that its file had.
    pub(super) file: String,
    /// How many lines it had.
    pub(super) size: u64,
    /// How many are here.
    pub(super) lines: u64,
    /// True if all are.
    pub(super) whole: bool,
    /// The first and the last number of lines that are left out, for the first hundred gaps.
    pub(super) gaps: Vec<[u64; 2]>,
    /// How many of its first lines the checkpoint covers; none without one.
    pub(super) signed_size: Option<u64>,
    /// The names of the given keys that have signed it.
    pub(super) signed_by: Vec<String>,
    /// How many of the lines here no checkpoint covers.
    pub(super) after_checkpoint: u64,
}

/// A ledger whose lines are being read.
pub(super) struct Open {
    /// The line of the bundle that it begins with.
    pub(super) number: u64,
    head: format::Ledger,
    root: Node,
    checkpoint: Option<(Note, Checkpoint)>,
    tree: Tree,
    /// The root where the checkpoint ends.
    signed: Option<Node>,
    last: Option<(u64, Hash)>,
    /// The hash of the line after the last one, if that line was left out.
    next: Option<Hash>,
    lines: u64,
    gaps: Vec<[u64; 2]>,
    after_checkpoint: u64,
    blob: Option<Part>,
    /// The key that line 0 says signs its checkpoints.
    signer: Option<Verifier>,
    /// The values that lines refer to, and those that were found.
    wanted: HashSet<[u8; 32]>,
    found: HashSet<[u8; 32]>,
    missing: u64,
}

/// A value of which not all parts were read.
struct Part {
    hash: Hash,
    hasher: Sha256,
    size: u64,
    done: u64,
}

fn node(text: &str) -> Result<Node, String> {
    parse_node(text).ok_or_else(|| format!("`{text}` is not a hash in base 64"))
}

fn nodes(texts: &[String]) -> Result<Vec<Node>, String> {
    texts.iter().map(|text| node(text)).collect()
}

impl Open {
    pub(super) fn new(number: u64, head: format::Ledger) -> Result<Self, String> {
        let root = node(&head.root)?;
        let checkpoint = match &head.checkpoint {
            None => None,
            Some(text) => {
                let read = Note::parse(text).and_then(|note| Checkpoint::parse(&note.text).map(|found| (note, found)));
                Some(read.ok_or("its checkpoint cannot be read")?)
            }
        };
        if head.status != if checkpoint.is_some() { "signed" } else { "unsigned" } {
            return Err(format!("its status cannot be `{}`", head.status));
        }
        Ok(Self {
            number,
            head,
            root,
            checkpoint,
            tree: Tree::default(),
            signed: None,
            last: None,
            next: None,
            lines: 0,
            gaps: Vec::new(),
            after_checkpoint: 0,
            blob: None,
            signer: None,
            wanted: HashSet::new(),
            found: HashSet::new(),
            missing: 0,
        })
    }

    pub(super) fn line(&mut self, shown: &format::Line<'_>) -> Result<(), String> {
        let raw = shown.raw.as_bytes();
        let line = Line::parse(raw).ok_or("not a line of a ledger")?;
        let (seq, hash) = (line.seq(), line.hash());
        let before = self.last.replace((seq, hash));
        let next = self.next.take();
        self.skip_to(before.map_or(0, |(last, _)| last.saturating_add(1)), seq);
        self.lines += 1;
        if !line.is_intact() || json::check(raw).is_err() {
            return Err("the bytes of the line are not those that were hashed".to_owned());
        }
        if seq == 0 {
            self.signer = signer_in(&line);
        }
        if let Some(signed) = Signed::of(&line) {
            signed.check_signer(self.signer.as_ref())?;
        }
        self.wanted.extend(blob::references(raw).map(|hash| hash.raw()));
        if seq != shown.seq || seq >= self.head.size {
            return Err(format!("line {seq} cannot be here"));
        }
        let follows = match before {
            Some((last, hash)) if last + 1 == seq => next.is_none() && line.prev() == hash,
            Some((last, _)) => last < seq && next.is_some() && !self.head.whole,
            None if seq == 0 => line.prev() == Hash::of_origin(&self.head.origin),
            None => !self.head.whole,
        };
        if !follows {
            return Err("it does not follow from the line before it".to_owned());
        }
        let signed_size = self.checkpoint.as_ref().map(|(_, checkpoint)| checkpoint.size);
        let is_after = signed_size.is_some_and(|size| seq >= size);
        self.after_checkpoint += u64::from(is_after);
        if shown.after_checkpoint != is_after {
            return Err("after_checkpoint is wrong".to_owned());
        }
        if self.head.whole {
            self.tree.push(leaf(&hash.raw()));
            if Some(self.tree.size()) == signed_size {
                self.signed = Some(self.tree.root());
            }
            return if shown.proof.is_none() && shown.next.is_none() {
                Ok(())
            } else {
                Err("a line of a whole ledger has no proof of its own".to_owned())
            };
        }
        self.prove(&hash, seq, shown.proof.as_ref().ok_or("it has no proof")?)?;
        if let Some(next) = &shown.next {
            let hash = Hash::parse(&next.hash).ok_or("the line behind it has no hash")?;
            self.prove(&hash, seq + 1, &next.proof)?;
            self.next = Some(hash);
        }
        Ok(())
    }

    /// Notes a gap before a line.
    fn skip_to(&mut self, expected: u64, seq: u64) {
        if seq > expected && self.gaps.len() < FAULTS_LISTED {
            self.gaps.push([expected, seq - 1]);
        }
    }

    fn prove(&self, hash: &Hash, seq: u64, proof: &RawValue) -> Result<(), String> {
        let proof: Vec<String> = serde_json::from_str(proof.get()).map_err(|e| e.to_string())?;
        let root = root_of_inclusion(leaf(&hash.raw()), seq, self.head.size, &nodes(&proof)?);
        if root == Some(self.root) { Ok(()) } else { Err(format!("the proof of line {seq} is wrong")) }
    }

    pub(super) fn blob(&mut self, part: &format::Blob<'_>) -> Result<(), String> {
        let hash = Hash::parse(&part.hash).ok_or("the value has no hash")?;
        if part.missing {
            self.missing += 1;
            self.found.insert(hash.raw());
            return Ok(());
        }
        let bytes = BASE64.decode(part.base64.as_bytes()).map_err(|e| format!("the value is not base 64: {e}"))?;
        if part.offset == 0 {
            self.whole()?;
            self.blob = Some(Part { hash, hasher: Sha256::new(), size: part.size, done: 0 });
        }
        let fits = |open: &&mut Part| (open.hash, open.size, open.done) == (hash, part.size, part.offset);
        let open = self.blob.as_mut().filter(fits).ok_or("a part of the value is missing")?;
        open.hasher.update(&bytes);
        open.done += bytes.len() as u64;
        if open.done < open.size {
            return Ok(());
        }
        let is_it = open.done == open.size && Hash::from_raw(&open.hasher.clone().finalize().into()) == hash;
        self.blob = None;
        self.found.insert(hash.raw());
        if is_it { Ok(()) } else { Err("the bytes of the value are not those that it is named for".to_owned()) }
    }

    /// Fails if a value is not whole.
    fn whole(&self) -> Result<(), String> {
        self.blob.as_ref().map_or(Ok(()), |part| Err(format!("the value {} is not whole", part.hash)))
    }

    /// The result, the number of missing values, and the faults of the ledger as a whole.
    pub(super) fn finish(mut self, keys: &[Verifier]) -> (Proved, u64, Vec<String>) {
        self.skip_to(self.last.map_or(0, |(last, _)| last.saturating_add(1)), self.head.size);
        let mut faults = Vec::new();
        let mut demand = |holds: bool, what: &str| {
            if !holds {
                faults.push(what.to_owned());
            }
        };
        let head = &self.head;
        demand(self.lines == head.lines, "lines are missing, or there are too many");
        demand(self.whole().is_ok(), "a value is not whole");
        demand(self.wanted.is_subset(&self.found), "a value that a line stands for is missing");
        if head.whole {
            let same = self.tree.size() == head.size && self.tree.root() == self.root;
            demand(same, "the lines are not those that the root is of");
        } else {
            let is_last = self.last.is_some_and(|(seq, _)| seq + 1 == head.size);
            demand(is_last || self.next.is_some(), "the line behind the last one is not shown to exist");
        }
        let mut signed_by = Vec::new();
        if let Some((note, checkpoint)) = &self.checkpoint {
            demand(checkpoint.origin == head.origin, "the checkpoint is about another ledger");
            let goes_on = if head.whole {
                checkpoint.size == 0 || self.signed == Some(checkpoint.root)
            } else {
                checkpoint.size <= head.size
                    && nodes(&head.consistency).is_ok_and(|proof| {
                        is_consistent(checkpoint.size, &checkpoint.root, head.size, &self.root, &proof)
                    })
            };
            demand(goes_on, "the lines are not those that were signed");
            for key in keys {
                match note.is_signed_by(key) {
                    Some(true) => signed_by.push(key.name().to_owned()),
                    Some(false) => demand(false, &format!("the signature of {} is wrong", key.name())),
                    None => {}
                }
            }
        }
        demand(keys.is_empty() || !signed_by.is_empty(), "none of the keys has signed it");
        let proved = Proved {
            origin: head.origin.clone(),
            file: head.file.clone(),
            size: head.size,
            lines: self.lines,
            gaps: self.gaps,
            whole: head.whole,
            signed_size: self.checkpoint.as_ref().map(|(_, checkpoint)| checkpoint.size),
            signed_by,
            after_checkpoint: self.after_checkpoint,
        };
        (proved, self.missing, faults)
    }
}
