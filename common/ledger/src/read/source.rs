//! Lines of a source: a file, standard input (`-`) or a pipe.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cp_common::context::given::unreadable;
use cp_common::{Error, Result, signals};
use rustix::fs::{Mode, OFlags};

pub use super::forward::Source;
use super::forward::{Lines, read_stream};

/// True if an operand means standard input. Its other names may not be opened again: a socket cannot be.
pub fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0"].iter().any(|name| path.as_os_str() == *name)
}

/// Opens a source. What cannot hold lines at all, such as a directory, is refused.
pub fn open_source(path: &Path) -> Result<Source> {
    let file = opened(path)?;
    let metadata = file.metadata().map_err(|e| Error::io("cannot read its metadata", e).in_file(path))?;
    if metadata.is_dir() {
        return Err(Error::validation("is a directory").in_file(path));
    }
    if is_stdin(path) {
        let ahead = io::Cursor::new(std::mem::take(&mut *AHEAD.lock().unwrap_or_else(PoisonError::into_inner)));
        return Ok(Source::Stream(Box::new(ahead.chain(Pipe(file)))));
    }
    if metadata.is_file() {
        return Ok(Source::File(file, metadata.len()));
    }
    Ok(Source::Stream(Box::new(Pipe(file))))
}

/// Bytes of standard input that were looked at, and are still to be read.
static AHEAD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The first bytes of a file or of standard input, which are still read afterwards; none of another pipe.
pub fn beginning_of(path: &Path, most: usize) -> Result<Vec<u8>> {
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file && !is_stdin(path) {
        return Ok(Vec::new());
    }
    let mut reader = open_source(path)?.reader();
    let (mut bytes, mut done) = (vec![0; most], 0);
    while done < most {
        match read_stream(&mut reader, &mut bytes[done..], path)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    if is_stdin(path) {
        AHEAD.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&bytes);
    }
    Ok(bytes)
}

fn opened(path: &Path) -> Result<File> {
    if is_stdin(path) {
        return Ok(File::from(rustix::io::dup(rustix::stdio::stdin())?));
    }
    // Opening a named pipe without a writer must not block, because signals are not noticed meanwhile.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    opened.map(File::from).map_err(|e| unreadable(e, "file", path))
}

/// A pipe or a terminal: every read waits for bytes or a signal.
struct Pipe(File);

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            signals::wait_readable(self.0.as_fd(), None).map_err(io::Error::other)?;
            match self.0.read(into) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

/// Opens a file for reading, which is no stream.
pub fn open(path: &Path) -> Result<File> {
    match open_source(path)? {
        Source::File(file, _) => Ok(file),
        Source::Stream(_) => Err(Error::validation("not a regular file").in_file(path)),
    }
}

/// Reads the lines of a source from the first to the last. What is appended to a file after this call is not seen.
pub fn lines(path: &Path) -> Result<Lines> {
    Ok(Lines::of(open_source(path)?, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_stream_gives_the_lines_of_the_file_also_around_one_that_is_too_long() {
        let mut bytes = b"first\n".to_vec();
        bytes.resize(bytes.len() + crate::format::line::HARD_LIMIT + (1 << 20), b'x');
        bytes.extend_from_slice(b"\nlast\nnot whole");
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("f");
        std::fs::write(&file, &bytes).unwrap();
        let mut whole = super::super::lines(&file).unwrap();
        let mut stream = Lines::of(Source::Stream(Box::new(Cursor::new(bytes))), &file);
        loop {
            let (expected, found) = (whole.next().unwrap(), stream.next().unwrap());
            let parts = |raw: &super::super::Raw<'_>| (raw.offset, raw.number, raw.end, raw.bytes.len());
            assert_eq!(expected.as_ref().map(parts), found.as_ref().map(parts));
            if expected.is_none() {
                break;
            }
        }
    }
}
