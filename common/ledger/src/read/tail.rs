//! The end of a ledger file: its lines from the last to the first in bounded memory, the last whole one, and the bytes
//! that a crash left behind it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result, signals};
use sha2::{Digest, Sha256};

use super::forward::{BLOCK, End, Lines, Raw, read_at};
use super::source::{Source, open_source};
use crate::format::line::{HARD_LIMIT, Hash, Line};

/// How much of the end is read at first: most lines are shorter.
const FIRST: usize = 4096;

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
    pub fn read(file: &File, path: &Path, size: u64) -> Result<Self> {
        let (mut lines, mut end) = (Backward::of(file, path, size)?, size);
        while let Some(raw) = lines.next()? {
            if raw.end != End::File {
                let last = raw.stored().filter(Line::is_intact).map_or(Last::Damaged, |line| Last::Intact {
                    seq: line.seq(),
                    hash: line.hash(),
                    asks: Asks::of(&line),
                });
                return Ok(Self { end, start: raw.offset, last });
            }
            end = raw.offset;
        }
        Ok(Self { end: 0, start: 0, last: Last::None })
    }
}

/// Where the last intact line ends, with its number and hash. `None` if no line is intact.
pub fn intact_end(file: &File, path: &Path, size: u64) -> Result<Option<(u64, (u64, Hash))>> {
    let mut lines = Backward::of(file, path, size)?;
    while let Some(raw) = lines.next()? {
        if let Some(line) = raw.stored().filter(Line::is_intact) {
            return Ok(Some((raw.offset + line.bytes().len() as u64 + 1, (line.seq(), line.hash()))));
        }
    }
    Ok(None)
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

/// Reads a part of a file block by block.
pub fn for_blocks(file: &File, from: u64, to: u64, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut at = from;
    while at < to {
        let want = usize::try_from(to - at).unwrap_or(BLOCK).min(BLOCK);
        let read = read_at(file, &mut block[..want], at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        each(&block[..read])?;
        at += read as u64;
    }
    Ok(())
}

/// True if an open file holds a line of a ledger, also a damaged one. Only a file of another program is read whole.
pub fn is_ledger_file(file: &File, path: &Path) -> Result<bool> {
    let opened = file.try_clone().and_then(|file| Ok((file.metadata()?.len(), file)));
    let (size, file) = opened.map_err(|e| Error::io("cannot read", e).in_file(path))?;
    let mut lines = Lines::new(file, path, 0, size);
    while let Some(raw) = lines.next()? {
        if raw.is_claimed() {
            return Ok(true);
        }
        signals::check()?;
    }
    Ok(false)
}

/// Reads the lines of a file from the last to the first.
pub fn backward(path: &Path) -> Result<Backward> {
    match open_source(path)? {
        Source::File(file, size) => Ok(Backward::new(file, path, size)),
        Source::Stream(_) => Err(Error::validation("not a regular file").in_file(path)),
    }
}

/// Returns the first value that `find` has for an entry, from the newest entry back.
pub fn newest<T>(path: &Path, mut find: impl FnMut(&Line<'_>) -> Option<T>) -> Result<Option<T>> {
    let mut lines = backward(path)?;
    while let Some(raw) = lines.next()? {
        if let Some(found) = raw.stored().and_then(|line| find(&line)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The backward reader; see [`backward`].
#[derive(Debug)]
pub struct Backward {
    file: File,
    path: PathBuf,
    /// The bytes of the file from `start` on; those from `end` on were given out.
    buffer: Vec<u8>,
    start: u64,
    end: u64,
    /// The reason that the next line ends; `None` before the first line.
    ended: Option<End>,
}

impl Backward {
    /// Reads the lines of an open file that end at or before `end`.
    fn of(file: &File, path: &Path, end: u64) -> Result<Self> {
        let file = file.try_clone().map_err(|e| Error::io("cannot read", e).in_file(path))?;
        Ok(Self::new(file, path, end))
    }

    /// Reads the lines that end at or before `end`.
    pub fn new(file: File, path: &Path, end: u64) -> Self {
        Self { file, path: path.to_owned(), buffer: Vec::new(), start: end, end, ended: None }
    }

    /// Where the lines that were not given out yet end.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The line before the one given out last.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its buffer, and can fail")]
    pub fn next(&mut self) -> Result<Option<Raw<'_>>> {
        if self.end == 0 {
            return Ok(None);
        }
        let end = if let Some(end) = self.ended {
            end
        } else {
            self.extend()?;
            if self.buffer.last() == Some(&b'\n') { End::LineFeed } else { End::File }
        };
        self.ended = Some(End::LineFeed);
        let if_long = if end == End::File { end } else { End::Limit };
        let feed = u64::from(end == End::LineFeed);
        loop {
            // The line feed that ends this line is not the one before it.
            let text = &self.buffer[..index(self.end - feed, self.start)];
            let found = memchr::memrchr(b'\n', text).map(|found| found + 1).or((self.start == 0).then_some(0));
            if let Some(from) = found {
                let end = if text.len() - from > HARD_LIMIT { if_long } else { end };
                return Ok(Some(self.take(from, feed, end)));
            }
            if text.len() > HARD_LIMIT {
                self.pass_over()?;
                return Ok(Some(Raw { bytes: &[], offset: self.end, number: 0, end: if_long }));
            }
            self.extend()?;
        }
    }

    /// Moves to the start of a line that is too long to be kept.
    fn pass_over(&mut self) -> Result<()> {
        while self.start > 0 {
            self.end = self.start;
            self.buffer.clear();
            self.extend()?;
            if let Some(found) = memchr::memrchr(b'\n', &self.buffer) {
                self.end = self.start + found as u64 + 1;
                return Ok(());
            }
        }
        self.end = 0;
        Ok(())
    }

    fn take(&mut self, from: usize, feed: u64, end: End) -> Raw<'_> {
        let to = index(self.end - feed, self.start);
        self.end = self.start + from as u64;
        Raw { bytes: &self.buffer[from..to], offset: self.end, number: 0, end }
    }

    /// Puts the block before the buffer's first byte in front of it.
    fn extend(&mut self) -> Result<()> {
        self.buffer.truncate(index(self.end, self.start));
        let least = if self.ended.is_none() { FIRST } else { BLOCK };
        let want = self.start.min(least.max(self.buffer.len()) as u64);
        let at = self.start - want;
        let mut block = vec![0; index(want, 0)];
        let mut filled = 0;
        while filled < block.len() {
            let read = read_at(&self.file, &mut block[filled..], at + filled as u64)
                .map_err(|e| Error::io("cannot read", e).in_file(&self.path))?;
            if read == 0 {
                return Err(Error::new(Code::Conflict, "the file was truncated while it was read").in_file(&self.path));
            }
            filled += read;
        }
        block.extend_from_slice(&self.buffer);
        self.buffer = block;
        self.start = at;
        Ok(())
    }
}

/// A distance in a buffer. Buffers fit memory, so it does too.
fn index(offset: u64, start: u64) -> usize {
    usize::try_from(offset - start).unwrap_or(usize::MAX)
}
