//! The streaming reader of stored lines from the first to the last, in bounded memory.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result, signals};
use memchr::memmem::Finder;

use crate::format::line::{HARD_LIMIT, Line};

/// How much is read at once.
pub(super) const BLOCK: usize = 256 << 10;

/// One line as it lies in a file.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// Its bytes without the line feed; only the first of them if it is too long.
    pub bytes: &'a [u8],
    /// Where it starts in the file.
    pub offset: u64,
    /// Its number, from 1. Zero when read backward, where lines are not counted.
    pub number: u64,
    /// The reason that it ends.
    pub end: End,
}

/// The reason that a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A line feed.
    LineFeed,
    /// The end of the file: a write that is under way, or was torn.
    File,
    /// The length limit; the rest of the line was passed over.
    Limit,
}

impl<'a> Raw<'a> {
    /// The parts of the line, if it is whole and has the shape of one of ours.
    pub fn stored(&self) -> Option<Line<'a>> {
        if self.end == End::LineFeed { Line::parse(self.bytes) } else { None }
    }

    /// True if it is a line of a ledger, also a damaged one or the beginning of the first.
    pub fn is_claimed(&self) -> bool {
        let is_torn_creation = self.end == End::File && self.number == 1 && Line::is_torn_creation(self.bytes);
        is_torn_creation || Line::is_claimed(self.bytes)
    }
}

/// Where lines come from.
pub enum Source {
    /// A file with its size, read at offsets: others may append to it meanwhile.
    File(File, u64),
    /// A stream, which can be read only once, from its beginning.
    Stream(Box<dyn Read + Send>),
}

/// The forward reader; see [`super::lines`].
pub struct Lines {
    source: Source,
    path: PathBuf,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    from: usize,
    to: usize,
    /// Where `buffer[from]` is in the file.
    offset: u64,
    number: u64,
    /// True if the rest of a line that is too long comes next.
    is_within: bool,
}

impl Lines {
    /// Reads the lines that start at `offset` and end before `size`.
    pub fn new(file: File, path: &Path, offset: u64, size: u64) -> Self {
        Self { offset, ..Self::of(Source::File(file, size), path) }
    }

    /// Reads the lines of a source; `path` names it in errors.
    pub fn of(source: Source, path: &Path) -> Self {
        let (buffer, path) = (Vec::new(), path.to_owned());
        Self { source, path, buffer, from: 0, to: 0, offset: 0, number: 0, is_within: false }
    }

    /// How many bytes were given out.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// True if this reads a stream, which can be read only once.
    pub fn is_stream(&self) -> bool {
        matches!(self.source, Source::Stream(_))
    }

    /// True if reading the next line may block, so that output should be flushed first.
    pub fn may_block(&self) -> bool {
        self.is_stream() && !self.buffer[self.from..self.to].contains(&b'\n')
    }

    /// The size of the file when reading began.
    pub fn size(&self) -> u64 {
        if let Source::File(_, size) = self.source { size } else { u64::MAX }
    }

    /// The next line.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its buffer, and can fail")]
    pub fn next(&mut self) -> Result<Option<Raw<'_>>> {
        self.pass_over()?;
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.from..self.to];
            if let Some(found) = memchr::memchr(b'\n', &unread[searched..]) {
                let length = searched + found;
                let end = if length > HARD_LIMIT { End::Limit } else { End::LineFeed };
                return Ok(Some(self.take(length, 1, end)));
            }
            searched = unread.len();
            if searched > HARD_LIMIT {
                self.is_within = true;
                return Ok(Some(self.take(searched, 0, End::Limit)));
            }
            if !self.fill()? {
                if searched == 0 {
                    return Ok(None);
                }
                return Ok(Some(self.take(searched, 0, End::File)));
            }
        }
    }

    /// The next line that holds `needle`. Lines in between are not counted, so its number is 0.
    ///
    /// The search runs over whole blocks, which is why it is much faster than looking at each line.
    pub fn next_with(&mut self, needle: &Finder<'_>) -> Result<Option<Raw<'_>>> {
        loop {
            self.pass_over()?;
            let unread = &self.buffer[self.from..self.to];
            if let Some(found) = needle.find(unread) {
                let start = memchr::memrchr(b'\n', &unread[..found]).map_or(0, |feed| feed + 1);
                self.from += start;
                self.offset += start as u64;
                return self.next().map(|raw| raw.map(|raw| Raw { number: 0, ..raw }));
            }
            // The bytes after the last line feed may begin a line that holds the needle.
            let done = memchr::memrchr(b'\n', unread).map_or(0, |feed| feed + 1);
            self.from += done;
            self.offset += done as u64;
            self.is_within = self.to - self.from > HARD_LIMIT;
            if !self.is_within && !self.fill()? {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, length: usize, feed: usize, end: End) -> Raw<'_> {
        let (start, offset) = (self.from, self.offset);
        self.from += length + feed;
        self.offset += (length + feed) as u64;
        self.number += 1;
        Raw { bytes: &self.buffer[start..start + length], offset, number: self.number, end }
    }

    /// Reads more behind what is unread; false at the end.
    fn fill(&mut self) -> Result<bool> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        let at = self.offset + self.to as u64;
        let left = usize::try_from(self.size().saturating_sub(at)).unwrap_or(usize::MAX);
        let want = left.min(BLOCK.max(self.to));
        if want == 0 {
            return Ok(false);
        }
        if self.buffer.len() < self.to + want {
            self.buffer.resize(self.to + want, 0);
        }
        let read = self.source.read(&mut self.buffer[self.to..self.to + want], at, &self.path)?;
        self.to += read;
        Ok(read > 0)
    }

    /// Passes over the rest of a line that is too long.
    fn pass_over(&mut self) -> Result<()> {
        while self.is_within {
            let unread = &self.buffer[self.from..self.to];
            let feed = memchr::memchr(b'\n', unread);
            let passed = feed.map_or(unread.len(), |feed| feed + 1);
            self.from += passed;
            self.offset += passed as u64;
            self.is_within = feed.is_none() && self.fill()?;
        }
        Ok(())
    }
}

impl Source {
    /// Reads the source from its beginning.
    pub fn reader(self) -> Box<dyn Read + Send> {
        match self {
            Self::File(file, _) => Box::new(file),
            Self::Stream(reader) => reader,
        }
    }

    /// Reads at an offset, which for a stream is where it stands.
    fn read(&mut self, into: &mut [u8], at: u64, path: &Path) -> Result<usize> {
        match self {
            Self::File(file, _) => read_at(file, into, at).map_err(|e| Error::io("cannot read", e).in_file(path)),
            Self::Stream(reader) => read_stream(reader, into, path),
        }
    }
}

/// One read of a stream.
pub(super) fn read_stream(reader: &mut impl Read, into: &mut [u8], path: &Path) -> Result<usize> {
    signals::check()?;
    loop {
        match reader.read(into) {
            Err(e) if e.kind() == ErrorKind::Interrupted => signals::check()?,
            Err(e) => {
                signals::check()?;
                return Err(Error::io("cannot read", e).in_file(path));
            }
            Ok(read) => return Ok(read),
        }
    }
}

/// One read at an offset, which is retried after a signal.
pub fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(into, at) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{backward, lines};
    use cp_common::Code;

    use super::*;
    use proptest::prelude::*;

    type Seen = Vec<(Vec<u8>, u64, End)>;

    fn forward(path: &Path) -> Seen {
        let (mut seen, mut reader) = (Vec::new(), lines(path).unwrap());
        while let Some(raw) = reader.next().unwrap() {
            assert_eq!(raw.number, seen.len() as u64 + 1);
            seen.push((raw.bytes.to_vec(), raw.offset, raw.end));
        }
        seen
    }

    fn from_the_end(path: &Path) -> Seen {
        let (mut seen, mut reader) = (Vec::new(), backward(path).unwrap());
        while let Some(raw) = reader.next().unwrap() {
            seen.push((raw.bytes.to_vec(), raw.offset, raw.end));
        }
        seen.reverse();
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn both_directions_see_what_split_sees(
            lengths in prop::collection::vec(prop_oneof![0_usize..40, Just(BLOCK - 1), Just(BLOCK), 0..3 * BLOCK], 0..6),
            closed in any::<bool>(),
        ) {
            let mut bytes: Vec<u8> = Vec::new();
            for (n, length) in lengths.iter().enumerate() {
                bytes.extend(std::iter::repeat_n(b'a' + u8::try_from(n).unwrap(), *length));
                bytes.push(b'\n');
            }
            if !closed {
                bytes.pop();
            }
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            std::fs::write(&path, &bytes).unwrap();
            let mut expected = Seen::new();
            let mut offset = 0;
            for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                let whole = part.ends_with(b"\n");
                let end = if whole { End::LineFeed } else { End::File };
                expected.push((part[..part.len() - usize::from(whole)].to_vec(), offset, end));
                offset += part.len() as u64;
            }
            prop_assert!(forward(&path) == expected);
            prop_assert!(from_the_end(&path) == expected);
            for letter in [b'a', b'c'] {
                let needle = Finder::new(std::slice::from_ref(&letter));
                let (mut seen, mut reader) = (Seen::new(), lines(&path).unwrap());
                while let Some(raw) = reader.next_with(&needle).unwrap() {
                    seen.push((raw.bytes.to_vec(), raw.offset, raw.end));
                }
                let having: Seen = expected.iter().filter(|(bytes, ..)| bytes.contains(&letter)).cloned().collect();
                prop_assert!(seen == having);
            }
        }
    }

    #[test]
    fn a_line_over_the_limit_is_passed_over_in_both_directions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut bytes = b"first\n".to_vec();
        bytes.resize(bytes.len() + HARD_LIMIT + 3 * BLOCK, b'x');
        bytes.extend_from_slice(b"\nlast\n");
        std::fs::write(&path, &bytes).unwrap();
        let places = [(0, End::LineFeed), (6, End::Limit), (bytes.len() as u64 - 5, End::LineFeed)];
        for seen in [forward(&path), from_the_end(&path)] {
            assert_eq!(seen.iter().map(|(_, offset, end)| (*offset, *end)).collect::<Vec<_>>(), places);
            assert_eq!((&seen[0].0[..], &seen[2].0[..]), (&b"first"[..], &b"last"[..]));
        }
    }

    #[test]
    fn missing_file_and_directory_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(lines(&dir.path().join("none")).err().unwrap().code(), Code::NotFound);
        assert_eq!(lines(dir.path()).err().unwrap().code(), Code::Validation);
    }
}
