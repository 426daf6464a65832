//! Proves the references of lines to other lines and to files beside the ledger: segments in order, seals, entries of
//! checkpoints, recoveries and blobs. A file with such lines is read once more, after [`super::verifier`] has proved
//! its lines.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Error, Result, signals};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::blob;
use crate::format::line::{Hash, Line};
use crate::proof::leaves::{Opening, origin_in};
use crate::proof::note::{Checkpoint, Signed, Verifier, signer_in};
use crate::proof::tree::{Node, Tree, leaf};
use crate::proof::verifier::Report;
use crate::proof::{CHECKPOINT, Kind, RECOVERED, SEAL};
use crate::read::segments::{is_closed, number_in};
use crate::read::{End, Raw, lines};

/// The most blobs that are remembered as verified.
const BLOBS_REMEMBERED: usize = 1 << 16;

/// One ledger, file after file.
#[derive(Debug, Default)]
pub struct Whole {
    ledger: PathBuf,
    /// The name that line 0 gives.
    origin: Option<String>,
    /// The key that line 0 names.
    signer: Option<Verifier>,
    /// There from line 0 on, as long as nothing is damaged.
    tree: Option<Tree>,
    /// The size that a checkpoint is about, and the root that the lines have there.
    wanted: Option<(u64, Option<Node>)>,
    before: Option<Before>,
    blobs: HashSet<Hash>,
    /// The report on the file that is walked.
    report: Report,
}

/// The file that was walked before.
#[derive(Debug)]
struct Before {
    name: String,
    len: u64,
    sha256: Hash,
    is_closed: bool,
}

#[derive(Deserialize)]
struct Seal {
    size: u64,
    root: Option<String>,
}

#[derive(Deserialize)]
struct Recovered {
    len: u64,
    sha256: String,
    file: String,
}

impl Whole {
    /// A ledger before its first file. `wanted` is the size whose root is needed afterwards.
    pub fn new(ledger: &Path, wanted: Option<u64>) -> Self {
        Self { ledger: ledger.to_owned(), wanted: wanted.map(|size| (size, None)), ..Self::default() }
    }

    /// The key that line 0 says signs its checkpoints, after the first file.
    pub fn signer(&self) -> Option<&Verifier> {
        self.signer.as_ref()
    }

    /// How the lines differ from those that a checkpoint covers. The error says why that cannot be known.
    pub fn deviation(&self, checkpoint: &Checkpoint, last: Option<u64>) -> Result<Option<(Kind, String)>, String> {
        let lines = last.map_or(0, |last| last + 1);
        if let Some(origin) = self.origin.as_ref().filter(|origin| **origin != checkpoint.origin) {
            return Ok(Some((Kind::Fork, format!("the checkpoint is about {}, not {origin}", checkpoint.origin))));
        }
        if lines < checkpoint.size {
            let message = format!("there are {lines} lines, but {} were signed", checkpoint.size);
            return Ok(Some((Kind::Rollback, message)));
        }
        match self.wanted {
            Some((size, Some(root))) if size == checkpoint.size => Ok((root != checkpoint.root)
                .then(|| (Kind::Fork, format!("the first {} lines are not those that were signed", checkpoint.size)))),
            _ => Err("lines that it covers are damaged or not here".to_owned()),
        }
    }

    /// Walks the next file, and adds to the report on its lines.
    pub fn file(&mut self, path: &Path, report: Report) -> Result<Report> {
        self.report = report;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_closed = is_closed(path);
        if self.report.fault_count > 0 {
            self.tree = None;
        }
        let (mut lines, mut hasher) = (lines(path)?, is_closed.then(Sha256::new));
        let (mut is_first, mut sealed) = (true, None::<Option<u64>>);
        let is_judged_by_its_beginning = !is_closed && !self.report.refers && self.wanted.is_none();
        while let Some(raw) = lines.next()? {
            if raw.offset >= self.report.bytes || raw.end == End::File && !is_closed {
                break;
            }
            if let Some(hasher) = &mut hasher {
                hasher.update(raw.bytes);
                hasher.update(b"\n");
            }
            if raw.number % 16_384 == 0 {
                signals::check()?;
            }
            let Some(line) = raw.stored() else {
                is_first = false;
                continue;
            };
            if std::mem::take(&mut is_first) {
                self.beginning(&name, &line, &raw);
                if is_judged_by_its_beginning {
                    break;
                }
            }
            if let Some(seal) = sealed.replace(seal_of(&line).map(|_| raw.number)).flatten()
                && is_closed
            {
                self.report.fault(&raw, Kind::Seal, format!("lines follow the seal in line {seal}"));
            }
            self.event(&line, &raw)?;
            self.blobs_of(&line, &raw)?;
            self.grow(&line);
        }
        if is_closed && sealed.flatten().is_none() && self.report.lines > 0 {
            self.report.add_at_end(Kind::Segment, format!("{name} is closed, but no seal ends it"));
        }
        if self.report.lines == 0
            && let Some(before) = &self.before
        {
            let message = format!("{name} is empty, but {} comes before it", before.name);
            self.report.add_at_end(Kind::Segment, message);
        }
        let sha256 = Hash::from_raw(&hasher.unwrap_or_default().finalize().into());
        self.before = Some(Before { name, len: self.report.bytes, sha256, is_closed });
        Ok(std::mem::take(&mut self.report))
    }

    /// Adds to the report on the last file if the ledger does not go on behind its last closed segment.
    pub fn end(&self, report: &mut Report) {
        if let Some(before) = &self.before
            && before.is_closed
        {
            let missing = self.ledger.file_name().unwrap_or_default().to_string_lossy();
            let message = format!("{missing}, which goes on from {}, is missing", before.name);
            report.add_at_end(Kind::Segment, message);
        }
    }

    fn proved(&mut self, what: &'static str) {
        *self.report.proved.entry(what).or_insert(0) += 1;
    }

    /// Judges how a file begins: with the ledger, or with the name of the file before it.
    fn beginning(&mut self, name: &str, line: &Line<'_>, raw: &Raw<'_>) {
        if let Some((_, number)) = number_in(name).filter(|(_, number)| *number != line.seq()) {
            let message = format!("{name} says that it begins with line {number}, and it begins with {}", line.seq());
            self.report.fault(raw, Kind::Segment, message);
        }
        if self.before.is_none()
            && line.seq() == 0
            && let Some(origin) = origin_in(line).filter(|_| line.is_event("ledger.open"))
        {
            self.signer = signer_in(line);
            if self.signer.is_none() && line.data_member("verifier").is_some() {
                self.report.not_proved("signature", "the key that line 0 names cannot be read");
            }
            (self.origin, self.tree) = (Some(origin), Some(Tree::default()));
            return self.proved("beginning");
        }
        let Some(opening) = Opening::of(line) else {
            if let Some(before) = &self.before {
                let message = format!("{name} does not begin as what follows {}", before.name);
                self.report.fault(raw, Kind::Segment, message);
            }
            return;
        };
        let is_closed = |before: &Before| before.len == opening.len && before.sha256.hex() == opening.sha256;
        match &self.before {
            Some(before) if opening.follows(&before.name) && is_closed(before) => self.proved("segments"),
            Some(before) if opening.follows(&before.name) => {
                let message = format!("{} is not the file of {} bytes that was closed", before.name, opening.len);
                self.report.fault(raw, Kind::Segment, message);
            }
            before => {
                let told = before.as_ref().map_or(String::new(), |before| format!(" ({} is there)", before.name));
                let message = format!(
                    "{} of {} bytes, which comes before, is missing{told}: put it back",
                    opening.file, opening.len
                );
                self.report.fault(raw, Kind::Segment, message);
            }
        }
    }

    fn event(&mut self, line: &Line<'_>, raw: &Raw<'_>) -> Result<()> {
        if let Some(seal) = seal_of(line) {
            // Without a root it proves nothing, and is only an entry of that name.
            seal.root.iter().for_each(|root| self.root(line, raw, "seals", seal.size, root));
        } else if let Some(signed) = data_of::<Signed>(line, CHECKPOINT) {
            self.root(line, raw, "checkpoint_entries", signed.size, &signed.root);
            // Any key may sign a ledger that names none, or whose beginning is not here.
            let named = self.signer.as_ref().map(Verifier::to_text);
            if let Some(named) = named.filter(|named| *named != signed.verifier) {
                let why = format!("signed by {}, but line 0 names {named}", signed.verifier);
                self.report.fault(raw, Kind::Signature, why);
            }
        } else if let Some(recovered) = data_of::<Recovered>(line, RECOVERED) {
            self.recovery(&recovered, line, raw)?;
        }
        Ok(())
    }

    /// Compares the root in a line with the root of the lines before it.
    fn root(&mut self, line: &Line<'_>, raw: &Raw<'_>, what: &'static str, size: u64, root: &str) {
        let Some(tree) = &self.tree else {
            return self
                .report
                .not_proved(what, format!("line {}: lines before it are damaged or not here", line.seq()));
        };
        if tree.size() != size {
            self.report.fault(raw, Kind::Seal, format!("does not fit the {size} lines before it"));
        } else if BASE64.encode(tree.root()) == root {
            self.proved(what);
        } else {
            self.report.fault(raw, Kind::Seal, format!("its root is not that of the {size} lines before it"));
        }
    }

    /// Looks for the bytes that were moved aside.
    fn recovery(&mut self, recovered: &Recovered, line: &Line<'_>, raw: &Raw<'_>) -> Result<()> {
        // A name only: nothing outside the ledger's directory is opened because a line says so.
        let name = Path::new(&recovered.file).file_name().unwrap_or_default();
        let file = self.ledger.with_file_name(name);
        let digest = blob::digest(&file).map_err(|e| Error::io("cannot read the torn bytes", e).in_file(&file))?;
        match digest {
            Some((hash, len)) if hash.hex() == recovered.sha256 && len == recovered.len => self.proved("recoveries"),
            Some(_) => {
                let message = format!("{} does not hold the bytes that were moved aside", recovered.file);
                self.report.fault(raw, Kind::Recovered, message);
            }
            None => {
                let why =
                    format!("line {}: {}, the bytes that were moved aside, is not here", line.seq(), recovered.file);
                self.report.not_proved("recoveries", why);
            }
        }
        Ok(())
    }

    fn blobs_of(&mut self, line: &Line<'_>, raw: &Raw<'_>) -> Result<()> {
        for hash in blob::references(line.body()) {
            if !self.blobs.insert(hash) {
                continue;
            }
            match blob::flaw(&self.ledger, &hash)? {
                None => self.proved("blobs"),
                Some(flaw) => self.report.fault(raw, Kind::Blob, format!("blob {hash} {flaw}")),
            }
            if self.blobs.len() >= BLOBS_REMEMBERED {
                self.blobs.clear();
            }
        }
        Ok(())
    }

    fn grow(&mut self, line: &Line<'_>) {
        let Some(tree) = &mut self.tree else { return };
        tree.push(leaf(&line.hash().raw()));
        if let Some((size, root)) = &mut self.wanted
            && *size == tree.size()
        {
            *root = Some(tree.root());
        }
    }
}

/// The seal in a line: it says that all lines before it are closed. Anybody may write an entry of that name.
fn seal_of(line: &Line<'_>) -> Option<Seal> {
    data_of::<Seal>(line, SEAL).filter(|seal| seal.size == line.seq())
}

/// The data of an entry with this event; `None` if the line has another event, or data of another type.
fn data_of<T: for<'a> Deserialize<'a>>(line: &Line<'_>, event: &str) -> Option<T> {
    line.is_event(event).then(|| serde_json::from_slice(line.member("data")?).ok())?
}
