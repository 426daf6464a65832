//! A line reader with bounded memory. A signal interrupts each wait, and output is flushed before each wait.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::signals;
use crate::wire::{Code, Error, Result};

/// The longest line of any stream, in bytes.
pub const LINE_LIMIT: usize = 64 << 20;

const CHUNK: usize = 64 << 10;

/// A line, as a range of the reader's buffer.
#[derive(Debug)]
pub struct Line {
    span: Range<usize>,
    /// The line number, from 1.
    pub number: u64,
    /// True if a line feed ended the line.
    pub terminated: bool,
    /// True if the line is over the limit, and was skipped.
    is_too_long: bool,
}

/// Reads lines from a descriptor.
pub struct Lines<F> {
    source: F,
    buffer: Vec<u8>,
    start: usize,
    /// Offset at which the search for a line feed continues.
    scanned: usize,
    number: u64,
    ended: bool,
    drains: bool,
    wake: Option<OwnedFd>,
    limit: usize,
}

impl<F: AsFd> Lines<F> {
    /// Reads from the current position of `source`.
    pub fn new(source: F) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            number: 0,
            ended: false,
            drains: false,
            wake: None,
            limit: LINE_LIMIT,
        }
    }

    /// Sets the maximum length of a line.
    #[must_use]
    pub fn at_most(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Continues to the end of the input after a signal, so that the last output of the upstream program is kept.
    pub fn drain_after_signals(&mut self) {
        self.drains = true;
    }

    /// Also runs `idle` when `wake` becomes readable during a wait. `idle` must make it unreadable.
    #[must_use]
    pub fn woken_by(mut self, wake: Option<OwnedFd>) -> Self {
        self.wake = wake;
        self
    }

    /// Returns the next line that is not blank; `None` at the end. `idle` runs before each read that could block.
    pub fn next(&mut self, idle: &mut dyn FnMut() -> Result<()>) -> Result<Option<Line>> {
        loop {
            match self.next_or_blank(idle)? {
                Some(line) if !line.is_too_long && self.raw(&line).trim_ascii().is_empty() => {}
                other => return Ok(other),
            }
        }
    }

    /// Returns the next line, also a blank one.
    pub fn next_or_blank(&mut self, idle: &mut dyn FnMut() -> Result<()>) -> Result<Option<Line>> {
        let mut is_too_long = false;
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
            if found.is_none() {
                self.scanned = self.buffer.len();
                is_too_long |= self.buffer.len() - self.start > self.limit;
                if is_too_long {
                    self.start = self.buffer.len();
                }
                if self.fill(idle)? {
                    continue;
                }
                if self.start == self.buffer.len() && !is_too_long {
                    return Ok(None);
                }
            }
            let span = self.start..found.unwrap_or(self.buffer.len());
            self.start = found.map_or(span.end, |end| end + 1);
            self.scanned = self.start;
            self.number += 1;
            return Ok(Some(Line { span, number: self.number, terminated: found.is_some(), is_too_long }));
        }
    }

    /// Puts the line back, so that it is the next one again.
    pub fn put_back(&mut self, line: &Line) {
        self.start = line.span.start;
        self.scanned = line.span.start;
        self.number = line.number - 1;
    }

    /// Returns the bytes of a line that [`Lines::next`] just returned, without its line end and a byte order mark at
    /// the beginning. Fails if the line is over the limit.
    pub fn bytes(&self, line: &Line) -> Result<&[u8]> {
        if line.is_too_long {
            let message = format!("the line is longer than {} MiB", self.limit >> 20);
            return Err(Error::validation(message).at_line(line.number));
        }
        let bytes = &self.buffer[line.span.clone()];
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        Ok(if line.number == 1 { bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes) } else { bytes })
    }

    /// Returns all bytes of a line that was just returned, with its line end, unless the line is over the limit.
    pub(super) fn raw(&self, line: &Line) -> &[u8] {
        &self.buffer[line.span.start..line.span.end + usize::from(line.terminated)]
    }

    /// Returns the rest of the input.
    pub fn rest(&mut self, idle: &mut dyn FnMut() -> Result<()>) -> Result<Vec<u8>> {
        while self.fill(idle)? {
            if self.buffer.len() - self.start > self.limit {
                return Err(Error::validation(format!("the text is longer than {} MiB", self.limit >> 20)));
            }
        }
        let rest = self.buffer.split_off(self.start);
        let first = self.number == 0;
        self.scanned = self.start;
        Ok(match rest.strip_prefix(b"\xEF\xBB\xBF") {
            Some(unmarked) if first => unmarked.to_vec(),
            _ => rest,
        })
    }

    /// Waits at most `limit` for a whole line or the end. Returns true if [`Lines::next`] will not block: a partial
    /// line is not enough.
    pub fn wait_line(&mut self, limit: Duration) -> Result<bool> {
        self.wait_line_or::<F>(None, limit)
    }

    /// Like [`Lines::wait_line`], but input of `other` also ends the wait.
    pub fn wait_line_or<G: AsFd>(&mut self, other: Option<&Lines<G>>, limit: Duration) -> Result<bool> {
        let until = Instant::now() + limit;
        loop {
            let there = memchr::memchr(b'\n', &self.buffer[self.scanned..]).is_some();
            if there || self.ended || self.buffer.len() - self.start > self.limit {
                return Ok(true);
            }
            self.scanned = self.buffer.len();
            let left = until.saturating_duration_since(Instant::now());
            let other = other.map(|other| other.source.as_fd());
            if !signals::wait_either(self.source.as_fd(), other, Some(left))? {
                return Ok(false);
            }
            self.fill(&mut || Ok(()))?;
        }
    }

    /// True if the line that has begun exceeds the limit already: [`Lines::next`] would skip it and wait for its end.
    pub fn is_too_long(&self) -> bool {
        let unread = &self.buffer[self.start..];
        unread.len() > self.limit && memchr::memchr(b'\n', unread).is_none()
    }

    /// Appends the next input, whole lines or not, and waits at most `limit` for it. Returns the number of bytes, 0 at
    /// the end; `None` if the limit was reached.
    pub fn some(&mut self, into: &mut Vec<u8>, limit: Duration) -> Result<Option<usize>> {
        if self.start == self.buffer.len() {
            if !self.ended && !signals::wait_readable(self.source.as_fd(), Some(limit))? {
                return Ok(None);
            }
            self.fill(&mut || Ok(()))?;
        }
        let count = self.buffer.len() - self.start;
        into.extend_from_slice(&self.buffer[self.start..]);
        self.start = self.buffer.len();
        self.scanned = self.start;
        Ok(Some(count))
    }

    /// Reads once. Returns false at the end of the input.
    fn fill(&mut self, idle: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        idle()?;
        while let Some(wake) = &self.wake
            && !signals::wait_either(self.source.as_fd(), Some(wake.as_fd()), None)?
        {
            idle()?;
        }
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 16 * CHUNK {
            // The memory of one long line must not be kept for the rest of the stream.
            self.buffer = Vec::new();
        }
        let filled = self.buffer.len();
        // A pipe returns one chunk at a time. To make room for as many bytes as are buffered would take quadratic time
        // for a long line.
        self.buffer.reserve(filled.clamp(CHUNK, 4 * CHUNK));
        self.ended = read_some(self.source.as_fd(), &mut self.buffer, self.drains)? == 0;
        Ok(!self.ended)
    }
}

/// Appends as many bytes as the memory of the buffer has room for. It is not zeroed first, which would take longer than
/// the rest of the work for a short line.
fn read_some(source: BorrowedFd<'_>, into: &mut Vec<u8>, drains: bool) -> Result<usize> {
    loop {
        if !drains {
            signals::wait_readable(source, None)?;
        }
        match rustix::io::read(source, spare_capacity(into)) {
            Ok(n) => return Ok(n),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(Error::new(Code::Io, format!("reading input: {}", std::io::Error::from(e)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn lines_of(chunks: &[&[u8]], limit: usize) -> Vec<String> {
        let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let chunks: Vec<Vec<u8>> = chunks.iter().map(|c| c.to_vec()).collect();
        let feeder = std::thread::spawn(move || chunks.iter().for_each(|c| writer.write_all(c).unwrap()));
        let mut lines = Lines::new(reader);
        lines.limit = limit;
        let mut all = Vec::new();
        while let Some(line) = lines.next(&mut || Ok(())).unwrap() {
            let shown = lines.bytes(&line).map_or("too long".into(), String::from_utf8_lossy);
            all.push(format!("{} {shown}", line.number));
        }
        feeder.join().unwrap();
        all
    }

    #[test]
    fn lines_skip_blanks_and_strip_cr_and_bom() {
        assert_eq!(lines_of(&[b"\xEF\xBB\xBFa\r\n\n  \nb"], LINE_LIMIT), ["1 a", "4 b"]);
    }

    #[test]
    fn line_over_limit_is_reported_and_next_is_read() {
        let long = vec![b'x'; 300_000];
        assert_eq!(lines_of(&[b"a\n", &long, b"\nb\n"], 100_000), ["1 a", "2 too long", "3 b"]);
        assert_eq!(lines_of(&[b"a\n", &long], 100_000), ["1 a", "2 too long"]);
    }

    #[test]
    fn line_over_limit_is_known_before_its_end() {
        let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut lines = Lines::new(reader);
        lines.limit = 100;
        writer.write_all(b"a\n").unwrap();
        assert!(lines.wait_line(Duration::from_secs(5)).unwrap() && !lines.is_too_long());
        assert!(lines.next(&mut || Ok(())).unwrap().is_some());
        writer.write_all(&[b'x'; 200]).unwrap();
        assert!(lines.wait_line(Duration::from_secs(5)).unwrap() && lines.is_too_long());
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_read_boundaries(text in "[ab\n\r]{0,40}", at in 0_usize..40) {
            let at = at.min(text.len());
            let (head, tail) = text.as_bytes().split_at(at);
            prop_assert_eq!(lines_of(&[head, tail], LINE_LIMIT), lines_of(&[text.as_bytes()], LINE_LIMIT));
        }
    }
}
