//! A private copy of what a page needs of a bundle, without a name, so that it is read twice and never held.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;

use cp_common::{Error, Result};

/// What a piece of the copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Ledger = 1,
    Proof,
    Line,
    Blob,
}

fn failed(e: std::io::Error) -> Error {
    Error::io("cannot keep the bundle in a temporary file", e).fatal()
}

/// The copy while it is written.
pub(crate) struct Spool {
    file: BufWriter<File>,
    /// How long it is.
    pub(crate) size: u64,
}

impl Spool {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { file: BufWriter::with_capacity(BLOCK, tempfile::tempfile().map_err(failed)?), size: 0 })
    }

    pub(crate) fn push(&mut self, chunk: Chunk, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| Error::validation("a record is too long").fatal())?;
        self.file.write_all(&[chunk as u8]).map_err(failed)?;
        self.file.write_all(&length.to_le_bytes()).map_err(failed)?;
        self.file.write_all(bytes).map_err(failed)?;
        self.size += 5 + u64::from(length);
        Ok(())
    }

    /// The file, whole.
    pub(crate) fn finish(self) -> Result<File> {
        self.file.into_inner().map_err(|e| failed(e.into_error()))
    }
}

const BLOCK: usize = 64 << 10;

/// Reads the copy from a place on.
pub(crate) struct Reader<'a> {
    file: &'a File,
    at: u64,
    buffer: Vec<u8>,
    start: usize,
    size: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a File, at: u64, size: u64) -> Self {
        Self { file, at, buffer: Vec::new(), start: 0, size }
    }

    /// The next piece, until the end.
    pub(crate) fn next(&mut self) -> Result<Option<(Chunk, &[u8])>> {
        if self.start == self.buffer.len() && self.at == self.size {
            return Ok(None);
        }
        self.fill(5)?;
        let head = &self.buffer[self.start..self.start + 5];
        let chunk =
            [Chunk::Ledger, Chunk::Proof, Chunk::Line, Chunk::Blob].into_iter().find(|one| *one as u8 == head[0]);
        let chunk = chunk.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        self.fill(5 + length)?;
        let start = self.start + 5;
        self.start = start + length;
        Ok(Some((chunk, &self.buffer[start..self.start])))
    }

    /// Has so many bytes at hand.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.buffer.len() - self.start >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let old = self.buffer.len();
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        self.buffer.resize(old + wanted.max(BLOCK).saturating_sub(old).min(left), 0);
        self.file.read_exact_at(&mut self.buffer[old..], self.at).map_err(failed)?;
        self.at += (self.buffer.len() - old) as u64;
        // What one long piece needed is not kept for the short ones.
        self.buffer.shrink_to(wanted.max(BLOCK));
        Ok(())
    }
}
