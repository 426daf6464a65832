//! The streaming reader of stored lines from the last to the first, in bounded memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result};

use super::forward::{BLOCK, End, Raw, open, read_at};
use crate::format::line::{HARD_LIMIT, Line};

/// Reads the lines of a file from the last to the first.
pub fn backward(path: &Path) -> Result<Backward> {
    let file = open(path)?;
    let size = file.metadata().map_err(|e| Error::io("cannot read its metadata", e).in_file(path))?.len();
    Ok(Backward::new(file, path, size))
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
        let feed = u64::from(end == End::LineFeed);
        loop {
            // The line feed that ends this line is not the one before it.
            let text = &self.buffer[..index(self.end - feed, self.start)];
            let found = memchr::memrchr(b'\n', text).map(|found| found + 1).or((self.start == 0).then_some(0));
            if let Some(from) = found {
                let end = if text.len() - from > HARD_LIMIT { End::Limit } else { end };
                return Ok(Some(self.take(from, feed, end)));
            }
            if text.len() > HARD_LIMIT {
                self.pass_over()?;
                return Ok(Some(Raw { bytes: &[], offset: self.end, number: 0, end: End::Limit }));
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
        let want = self.start.min(BLOCK.max(self.buffer.len()) as u64);
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
