//! The end of a ledger file: the last whole line, and the bytes that a crash left behind it.

use std::fs::File;
use std::io;
use std::path::Path;

use cp_common::{Error, Result};
use sha2::{Digest, Sha256};

use super::forward::read_at;
use crate::format::line::{HARD_LIMIT, Hash, Line};

const BLOCK: usize = 64 << 10;

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where the last whole line ends; what follows is torn.
    pub end: u64,
    /// Where the last whole line starts.
    pub start: u64,
    /// The last whole line.
    pub last: Last,
}

/// The last whole line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// The file has no whole line.
    None,
    /// A line whose hash is right.
    Intact {
        /// Its place in the order.
        seq: u64,
        /// Its hash.
        hash: Hash,
        /// The operation that must be finished.
        asks: Asks,
    },
    /// Bytes that are not an intact line.
    Damaged,
}

/// The operation that the last line of a file announces, and that must be finished after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Nothing.
    Nothing,
    /// The file is closed: the next one takes its place.
    Rotation,
    /// A rollback is accepted: the checkpoint of so many lines is to be moved aside.
    Rollback {
        /// How many lines it covers.
        signed: u64,
    },
}

impl Last {
    /// How many lines there are.
    pub fn lines(self) -> u64 {
        if let Self::Intact { seq, .. } = self { seq + 1 } else { 0 }
    }
}

impl Asks {
    /// Entries with these events can be copies from another ledger. An entry that does not fit its place announces
    /// nothing.
    fn of(line: &Line<'_>) -> Self {
        let number = |name: &str| -> Option<u64> { std::str::from_utf8(line.data_member(name)?).ok()?.parse().ok() };
        if line.is_event("segment.seal") && number("size") == Some(line.seq()) {
            Self::Rotation
        } else if line.is_event("ledger.rollback")
            && number("lines") == Some(line.seq())
            // The entry of a checkpoint follows the lines that it covers, so a whole ledger has more.
            && let Some(signed) = number("signed").filter(|signed| *signed >= line.seq())
        {
            Self::Rollback { signed }
        } else {
            Self::Nothing
        }
    }
}

impl Tail {
    /// Looks at the end of a file that has `size` bytes.
    pub fn read(file: &File, size: u64) -> io::Result<Self> {
        let Some(feed) = last_feed(file, size)? else { return Ok(Self { end: 0, start: 0, last: Last::None }) };
        let start = last_feed(file, feed)?.map_or(0, |before| before + 1);
        let mut tail = Self { end: feed + 1, start, last: Last::Damaged };
        let length = usize::try_from(feed - start).unwrap_or(usize::MAX);
        if length <= HARD_LIMIT {
            let mut bytes = vec![0; length];
            read_all(file, &mut bytes, start)?;
            if let Some(line) = Line::parse(&bytes).filter(Line::is_intact) {
                tail.last = Last::Intact { seq: line.seq(), hash: line.hash(), asks: Asks::of(&line) };
            }
        }
        Ok(tail)
    }
}

/// Where the last intact line ends, with its number and hash. `None` if no line is intact.
pub fn intact_end(file: &File, path: &Path, size: u64) -> Result<Option<(u64, (u64, Hash))>> {
    let failed = |e: io::Error| Error::io("cannot read", e).in_file(path);
    let mut end = size;
    loop {
        let tail = Tail::read(file, end).map_err(failed)?;
        match tail.last {
            Last::None => return Ok(None),
            Last::Intact { seq, hash, .. } => return Ok(Some((tail.end, (seq, hash)))),
            // Without the damaged line's line feed, the one before it is the last whole one.
            Last::Damaged => end = tail.start,
        }
    }
}

/// The hash of a part of a file.
pub fn hash_of(file: &File, from: u64, to: u64) -> io::Result<Hash> {
    let mut hasher = Sha256::new();
    for_blocks(file, from, to, |block| {
        hasher.update(block);
        Ok(())
    })?;
    Ok(Hash::from_raw(&hasher.finalize().into()))
}

/// The offset of the last line feed before `end`.
fn last_feed(file: &File, end: u64) -> io::Result<Option<u64>> {
    let mut block = vec![0; 4096];
    let mut end = end;
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = usize::try_from(end - start).unwrap_or(block.len());
        read_all(file, &mut block[..part], start)?;
        if let Some(found) = memchr::memrchr(b'\n', &block[..part]) {
            return Ok(Some(start + found as u64));
        }
        end = start;
        block.resize(BLOCK, 0);
    }
    Ok(None)
}

/// Reads exactly as many bytes as fit.
pub fn read_all(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < into.len() {
        match read_at(file, &mut into[filled..], at + filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// Reads a part of a file block by block.
pub fn for_blocks(file: &File, from: u64, to: u64, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut at = from;
    while at < to {
        let want = usize::try_from(to - at).unwrap_or(BLOCK).min(BLOCK);
        read_all(file, &mut block[..want], at)?;
        each(&block[..want])?;
        at += want as u64;
    }
    Ok(())
}

/// True if an open file holds a line of ours at its beginning or at its end.
pub fn is_ledger_file(file: &File) -> bool {
    let mut head = vec![0; 4096];
    let read = read_at(file, &mut head, 0).unwrap_or(0);
    if head[..read].split(|byte| *byte == b'\n').next().is_some_and(|line| Line::parse(line).is_some()) {
        return true;
    }
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    Tail::read(file, size).is_ok_and(|tail| matches!(tail.last, Last::Intact { .. }))
}
