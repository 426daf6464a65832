//! A ledger that goes into a bundle, and the large values that its lines name. The ledger is read twice: for its size and tree, and to write
//! its lines.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::wire::raw;
use cp_common::{Code, Error, Result};
use cp_ledger::format::line::{Hash, Line};
use cp_ledger::proof::checkpoint::{checkpoint_path, read_checkpoint};
use cp_ledger::proof::leaves::{each_line, origin_in};
use cp_ledger::proof::note::{Checkpoint, Note};
use cp_ledger::proof::tree::{Node, Tree, consistency, inclusion, leaf, parent};
use cp_ledger::read::read_at;
use cp_ledger::read::segments::segments_of;
use cp_ledger::store::blob;

use super::format;
use crate::reading::{Select, View};

/// A ledger after the first of two passes, which finds its size and its tree.
pub(super) struct Source<'a> {
    ledger: &'a Path,
    files: Vec<PathBuf>,
    select: &'a Select,
    origin: String,
    tree: Tree,
    checkpoint: Option<(Note, Checkpoint)>,
    selected: u64,
    /// The whole tree, where proofs are needed.
    levels: Option<Levels>,
}

/// Passes each line of a ledger, proved, until there were `most`.
fn each(files: &[PathBuf], most: u64, mut each: impl FnMut(&Line<'_>) -> Result<()>) -> Result<()> {
    let mut left = most;
    if left == 0 {
        return Ok(());
    }
    let one = |line: &Line<'_>| {
        each(line)?;
        left -= 1;
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    each_line(files, one).map_err(Error::fatal)
}

impl<'a> Source<'a> {
    /// Reads a ledger for the first time.
    pub(super) fn read(ledger: &'a Path, select: &'a Select) -> Result<Self> {
        let mut files = segments_of(ledger)?;
        files.push(ledger.to_owned());
        files.retain(|file| file.is_file());
        let checkpoint = read_checkpoint(&checkpoint_path(ledger))?;
        let mut this = Self {
            ledger,
            files,
            select,
            origin: String::new(),
            tree: Tree::default(),
            checkpoint,
            selected: 0,
            levels: None,
        };
        let mut signed = None::<Node>;
        let signed_size = this.checkpoint.as_ref().map_or(0, |(_, checkpoint)| checkpoint.size);
        let files = this.files.clone();
        each(&files, u64::MAX, |line| {
            if line.seq() == 0 {
                this.origin = origin_in(line).unwrap_or_default();
            }
            this.tree.push(leaf(&line.hash().raw()));
            if this.tree.size() == signed_size {
                signed = Some(this.tree.root());
            }
            this.selected += u64::from(select.matches(&View::of_line(line)));
            Ok(())
        })?;
        if this.origin.is_empty() {
            return Err(Error::validation("not a ledger: it has no opening line").in_file(ledger).fatal());
        }
        if let Some((_, checkpoint)) = &this.checkpoint
            && (checkpoint.origin != this.origin || checkpoint.size > 0 && signed != Some(checkpoint.root))
        {
            return Err(Error::new(Code::Integrity, "the ledger is not the one that was signed")
                .in_file(ledger)
                .fatal()
                .hint("cp-log verify shows whether it was rolled back or forked"));
        }
        Ok(this)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.selected == 0
    }

    fn is_whole(&self) -> bool {
        self.selected == self.tree.size()
    }

    /// The record that precedes the lines. Proofs can be computed after this call.
    pub(super) fn head(&mut self) -> Result<format::Ledger> {
        let size = self.tree.size();
        let mut proof = Vec::new();
        if !self.is_whole() {
            let mut levels = Levels::default();
            each(&self.files, size, |line| levels.push(leaf(&line.hash().raw())))?;
            if let Some((_, checkpoint)) = &self.checkpoint {
                proof = levels.hashes(&consistency(checkpoint.size, size))?;
            }
            self.levels = Some(levels);
        }
        let file = self.ledger.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format::Ledger {
            origin: self.origin.clone(),
            file,
            size,
            root: BASE64.encode(self.tree.root()),
            lines: self.selected,
            whole: self.is_whole(),
            status: if self.checkpoint.is_some() { "signed" } else { "unsigned" }.to_owned(),
            checkpoint: self.checkpoint.as_ref().map(|(note, _)| note.to_string()),
            consistency: encoded(&proof),
        })
    }

    /// Passes the selected lines, each with its proof.
    pub(super) fn lines(&mut self, each_one: &mut dyn FnMut(&format::Line<'_>) -> Result<()>) -> Result<()> {
        let (size, select, files) = (self.tree.size(), self.select, self.files.clone());
        let mut levels = self.levels.take();
        let signed = self.checkpoint.as_ref().map(|(_, checkpoint)| checkpoint.size);
        // A line is written when it is known whether the one behind it is shown.
        let mut held: Option<format::Line<'static>> = None;
        each(&files, size, |line| {
            let is_shown = select.matches(&View::of_line(line));
            if let Some(mut before) = held.take() {
                if let (false, Some(levels)) = (is_shown, &mut levels) {
                    let proof = raw(&encoded(&levels.hashes(&inclusion(line.seq(), size))?))?;
                    before.next = Some(format::Next { hash: line.hash().to_string(), proof });
                }
                each_one(&before)?;
            }
            if !is_shown {
                return Ok(());
            }
            let text = std::str::from_utf8(line.bytes()).map_err(|_| {
                Error::new(Code::Integrity, "the line is not UTF-8")
                    .with("seq", line.seq())
                    .in_file(self.ledger)
                    .fatal()
            })?;
            let proof = match &mut levels {
                Some(levels) => Some(raw(&encoded(&levels.hashes(&inclusion(line.seq(), size))?))?),
                None => None,
            };
            held = Some(format::Line {
                seq: line.seq(),
                raw: text.to_owned().into(),
                after_checkpoint: signed.is_some_and(|signed| line.seq() >= signed),
                proof,
                next: None,
            });
            Ok(())
        })?;
        held.map_or(Ok(()), |last| each_one(&last))
    }
}

fn encoded(nodes: &[Node]) -> Vec<String> {
    nodes.iter().map(|node| BASE64.encode(node)).collect()
}

/// How long a node is.
const NODE: u64 = 32;

/// The nodes of the full subtrees, a file for each height.
#[derive(Default)]
pub(super) struct Levels {
    files: Vec<BufWriter<File>>,
    /// The left node of each height that waits for its right one.
    waiting: Vec<Option<Node>>,
}

fn failed(e: std::io::Error) -> Error {
    Error::io("cannot keep the tree in a temporary file", e)
}

impl Levels {
    /// Adds the next leaf.
    pub(super) fn push(&mut self, leaf: Node) -> Result<()> {
        let mut node = leaf;
        for level in 0.. {
            if level == self.files.len() {
                self.files.push(BufWriter::new(tempfile::tempfile().map_err(failed)?));
                self.waiting.push(None);
            }
            self.files[level].write_all(&node).map_err(failed)?;
            let Some(left) = self.waiting[level].take() else {
                self.waiting[level] = Some(node);
                break;
            };
            node = parent(&left, &node);
        }
        Ok(())
    }

    /// The hashes of these ranges of leaves, each as RFC 6962 divides a tree.
    pub(super) fn hashes(&mut self, ranges: &[Range<u64>]) -> Result<Vec<Node>> {
        for file in &mut self.files {
            file.flush().map_err(failed)?;
        }
        ranges.iter().map(|range| self.root(range.start, range.end)).collect()
    }

    fn root(&self, start: u64, end: u64) -> Result<Node> {
        let length = end - start;
        if length.is_power_of_two() && start.is_multiple_of(length) {
            let level = length.ilog2();
            let mut node = [0; 32];
            let file = self.files.get(level as usize).map(BufWriter::get_ref);
            let read = file.map_or(Ok(0), |file| read_at(file, &mut node, (start >> level) * NODE)).map_err(failed)?;
            return if read == node.len() { Ok(node) } else { Err(failed(std::io::ErrorKind::UnexpectedEof.into())) };
        }
        let middle = start + (1 << (length - 1).ilog2());
        Ok(parent(&self.root(start, middle)?, &self.root(middle, end)?))
    }
}

/// The most of a value that one record has, so that no line is too long to be read.
const PART: usize = 4 << 20;

/// The blobs of one ledger, each once.
pub(super) struct Blobs<'a> {
    ledger: &'a Path,
    /// True if there is anything to look for.
    has_any: bool,
    written: HashSet<[u8; 32]>,
    pub(super) count: u64,
}

/// The hashes in a line's text.
fn named(raw: &[u8]) -> impl Iterator<Item = Hash> + '_ {
    const PREFIX: &[u8] = b"sha256:";
    memchr::memmem::find_iter(raw, PREFIX).filter_map(|at| Hash::from_hex(raw.get(at + 7..at + 71)?))
}

impl<'a> Blobs<'a> {
    pub(super) fn of(ledger: &'a Path) -> Self {
        let has_any = blob::directory(ledger).is_dir();
        Self { ledger, has_any, written: HashSet::new(), count: 0 }
    }

    /// Passes the blobs that a line names and that were not passed yet.
    pub(super) fn of_line(&mut self, raw: &[u8], each: &mut dyn FnMut(&format::Blob<'_>) -> Result<()>) -> Result<()> {
        let must: HashSet<[u8; 32]> = blob::references(raw).map(|hash| hash.raw()).collect();
        if !self.has_any && must.is_empty() {
            return Ok(());
        }
        for hash in named(raw) {
            let path = blob::path(self.ledger, &hash);
            if !(must.contains(&hash.raw()) || path.is_file()) || !self.written.insert(hash.raw()) {
                continue;
            }
            self.count += 1;
            pass(&hash, &path, each)?;
        }
        Ok(())
    }
}

/// Passes the parts of one blob.
fn pass(hash: &Hash, path: &Path, each: &mut dyn FnMut(&format::Blob<'_>) -> Result<()>) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("cannot read the blob", e).in_file(path).fatal();
    let empty = |media_type: &'static str| format::Blob {
        hash: hash.to_string().into(),
        media_type: media_type.into(),
        size: 0,
        offset: 0,
        base64: "".into(),
        missing: false,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return each(&format::Blob { missing: true, ..empty("application/octet-stream") });
        }
        Err(e) => return Err(failed(e)),
    };
    let size = file.metadata().map_err(failed)?.len();
    let (mut part, mut offset, mut media) = (Vec::with_capacity(PART.min(1 << 16)), 0, None);
    loop {
        part.clear();
        (&file).take(PART as u64).read_to_end(&mut part).map_err(failed)?;
        if part.is_empty() && (offset > 0 || size > 0) {
            break;
        }
        let media = *media.get_or_insert_with(|| media_type(&part));
        each(&format::Blob { size, offset, base64: BASE64.encode(&part).into(), ..empty(media) })?;
        offset += part.len() as u64;
        if size == 0 {
            break;
        }
    }
    if offset != size {
        return Err(Error::new(Code::Conflict, "the blob changed while it was read").in_file(path).fatal());
    }
    Ok(())
}

/// The media type of a value by its first part, in which text may be cut within a character.
fn media_type(part: &[u8]) -> &'static str {
    match std::str::from_utf8(part) {
        Err(e) if e.error_len().is_some() => "application/octet-stream",
        _ if matches!(part.first(), Some(b'{' | b'['))
            && serde_json::from_slice::<serde::de::IgnoredAny>(part).is_ok() =>
        {
            "application/json"
        }
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cp_ledger::proof::tree::{Ranges, consistency, inclusion, leaf};

    #[test]
    fn levels_give_the_proofs_of_an_in_memory_tree() {
        for size in 1..40_u64 {
            let mut levels = Levels::default();
            (0..size).for_each(|n| levels.push(leaf(&n.to_be_bytes())).unwrap());
            for at in 0..size {
                for ranges in [inclusion(at, size), consistency(at, size)] {
                    let mut expected = Ranges::new(ranges.clone());
                    (0..size).for_each(|n| expected.push(leaf(&n.to_be_bytes())));
                    assert_eq!(levels.hashes(&ranges).unwrap(), expected.hashes(), "{at} of {size}");
                }
            }
        }
    }
}
