//! Captures the output of a command. The beginning and the end are kept; all bytes are counted and hashed.
//!
//! The standard input of a command is always a copy. Through the descriptor of a file a command could change the mode
//! of the file, and on some machines open it again for writing, even outside of the sandbox.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cp_common::context::given::unreadable;
use cp_common::{Error, Result};
use os_pipe::PipeWriter;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::digest::format_digest;
use crate::nofollow::Node;
use crate::sandbox;

/// Bytes kept from the beginning of a stream.
const HEAD: usize = 768 * 1024;
/// The most reads of a stream before other events are looked at, which takes as long as some reads.
const AT_ONCE: usize = 16;
/// Bytes kept from the end of a stream.
const TAIL: usize = 256 * 1024;

/// One output stream of a command.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(super) head: Vec<u8>,
    /// The last bytes after the head.
    pub(super) tail: VecDeque<u8>,
    /// The number of all bytes.
    pub total: u64,
    hash: Sha256,
}

impl Capture {
    /// Adds the next bytes of the stream.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.hash.update(bytes);
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    /// The kept bytes: the beginning and the end if some bytes are omitted.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (after, before) = self.tail.as_slices();
        [&self.head, after, before].concat()
    }

    /// The position in the kept bytes at which bytes are omitted, and their number.
    pub(super) fn gap(&self) -> Option<(usize, u64)> {
        let omitted = self.total - (self.head.len() + self.tail.len()) as u64;
        (omitted > 0).then_some((self.head.len(), omitted))
    }

    /// The digest of all bytes, `sha256:…`.
    pub(super) fn sha256(&self) -> String {
        format_digest(self.hash.clone())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// A callback that receives the output of a command as it arrives. It returns false if nobody reads it any more.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Stream, &[u8]) -> bool;

/// The output of a command, captured and passed on as it arrives.
pub(super) struct Output<'a> {
    pipes: [Pipe; 2],
    watch: Option<Watch<'a>>,
    buffer: Vec<u8>,
    /// True while the command draws on the screen of a terminal. Messages are only captured then.
    is_on_screen: bool,
}

struct Pipe {
    stream: Stream,
    source: Option<File>,
    capture: Capture,
}

impl<'a> Output<'a> {
    /// Also returns the ends to which the command writes.
    pub(super) fn new(watch: Option<Watch<'a>>) -> Result<(Self, [PipeWriter; 2])> {
        let make = |stream| -> std::io::Result<(Pipe, PipeWriter)> {
            let (reader, writer) = os_pipe::pipe()?;
            let source = File::from(OwnedFd::from(reader));
            rustix::io::ioctl_fionbio(&source, true)?;
            Ok((Pipe { stream, source: Some(source), capture: Capture::default() }, writer))
        };
        let failed = |e| Error::io("cannot make a pipe", e);
        let ((out, out_writer), (err, err_writer)) =
            (make(Stream::Out).map_err(failed)?, make(Stream::Err).map_err(failed)?);
        let buffer = vec![0; 64 * 1024];
        Ok((Self { pipes: [out, err], watch, buffer, is_on_screen: false }, [out_writer, err_writer]))
    }

    fn open(&self) -> impl Iterator<Item = &File> {
        self.pipes.iter().filter_map(|pipe| pipe.source.as_ref())
    }

    /// The descriptors to poll.
    pub(super) fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.open().map(|source| PollFd::new(source, PollFlags::IN))
    }

    /// The open pipes by device and inode.
    pub(super) fn nodes(&self) -> Vec<Node> {
        self.open().filter_map(|source| source.metadata().ok()).map(|meta| (meta.dev(), meta.ino())).collect()
    }

    /// True if all writers have closed both pipes.
    pub(super) fn is_closed(&self) -> bool {
        self.open().next().is_none()
    }

    /// Reads available bytes. True if there may be more.
    pub(super) fn read(&mut self) -> bool {
        let mut has_more = false;
        for pipe in &mut self.pipes {
            for _ in 0..AT_ONCE {
                let Some(source) = &mut pipe.source else { break };
                match source.read(&mut self.buffer) {
                    Ok(length @ 1..) => {
                        pipe.add(&self.buffer[..length], &mut self.watch);
                        has_more = true;
                    }
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                    Ok(_) | Err(_) => pipe.source = None,
                }
            }
        }
        has_more
    }

    /// Adds messages of this program to the standard error.
    pub(super) fn say_all(&mut self, messages: impl IntoIterator<Item = String>) {
        for message in messages {
            let watch = if self.is_on_screen { &mut None } else { &mut self.watch };
            self.pipes[1].add(format!("cp-exec: {message}\n").as_bytes(), watch);
        }
    }

    /// Reads the output from the pseudo-terminal of the command.
    pub(super) fn read_from(&mut self, terminal: OwnedFd) -> std::io::Result<()> {
        rustix::io::ioctl_fionbio(&terminal, true)?;
        (self.pipes[0].source, self.is_on_screen) = (Some(terminal.into()), true);
        Ok(())
    }

    /// The captured standard output and standard error.
    pub(super) fn captured(self) -> [Capture; 2] {
        self.pipes.map(|pipe| pipe.capture)
    }

    /// The kept bytes of the standard error.
    pub(super) fn errors(&self) -> Vec<u8> {
        self.pipes[1].capture.bytes()
    }
}

impl Pipe {
    /// Adds bytes as if the command had written them. A pipe that nobody reads any more is closed, so that the command
    /// fails to write to it, as without a sandbox.
    fn add(&mut self, bytes: &[u8], watch: &mut Option<Watch<'_>>) {
        self.capture.add(bytes);
        if watch.as_mut().is_some_and(|watch| !watch(self.stream, bytes)) {
            self.source = None;
        }
    }
}

/// Files up to this size are copied into memory, so that the command can seek. Longer files, pipes, terminals and
/// sockets are copied through a new pipe.
const COPIED: u64 = 16 << 20;

/// A file in memory with these bytes.
pub(crate) fn stdin_from_bytes(bytes: &[u8]) -> Result<OwnedFd> {
    sandbox::memory_file("stdin", bytes).map_err(|e| Error::io("cannot prepare the standard input", e))
}

/// The content of a file.
pub(crate) fn stdin_from_file(path: &Path) -> Result<OwnedFd> {
    let file = File::open(path).map_err(|e| unreadable(e, "file", path))?;
    contents(file).map_err(|e| Error::io("--stdin", e).in_file(path))
}

/// The content of our own standard input. A pipe is not passed on, because a command could open it for writing
/// through `/proc/self/fd/0`, and other processes may read from the same pipe.
pub(crate) fn copy_own_stdin() -> Result<OwnedFd> {
    let failed = |e| Error::io("cannot pass the standard input on", e);
    let ours = rustix::stdio::stdin().try_clone_to_owned().map_err(failed)?;
    contents(ours.into()).map_err(failed)
}

/// Moves our own standard input, if it is a file, to where the command stopped reading its copy: the rest belongs to
/// the caller, such as a loop that reads a list.
pub(crate) fn advance_own_stdin(copy: OwnedFd) {
    let mut copy = File::from(copy);
    // A pipe has no position, and was read ahead.
    if let Ok(read) = copy.stream_position().map(u64::cast_signed) {
        let _ = rustix::fs::seek(rustix::stdio::stdin(), rustix::fs::SeekFrom::Current(read));
    }
}

fn contents(mut file: File) -> std::io::Result<OwnedFd> {
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > COPIED {
        // The thread ends with the command that reads the pipe, or with this program.
        let (reader, writer) = os_pipe::pipe()?;
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || copy_all(file, writer, || true))?;
        return Ok(reader.into());
    }
    let (start, mut bytes) = (file.stream_position()?, Vec::new());
    file.read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(start))?;
    sandbox::memory_file("stdin", &bytes)
}

/// Copies bytes until one side ends, or there is nothing `more` before a read. True if it is the side that is read.
pub(super) fn copy_all(from: impl AsFd, to: impl AsFd, more: impl Fn() -> bool) -> bool {
    let mut buffer = vec![0; 64 * 1024];
    // Another process may have made a side non-blocking.
    let wait = |side: BorrowedFd<'_>, event| {
        let _ = poll(&mut [PollFd::from_borrowed_fd(side, event)], None);
    };
    while more() {
        let mut left = match rustix::io::read(&from, &mut *buffer) {
            Ok(length @ 1..) => &buffer[..length],
            Err(Errno::AGAIN | Errno::INTR) => {
                wait(from.as_fd(), PollFlags::IN);
                continue;
            }
            Ok(_) | Err(_) => return true,
        };
        while !left.is_empty() {
            match rustix::io::write(&to, left) {
                Ok(length) => left = &left[length..],
                Err(Errno::AGAIN | Errno::INTR) => wait(to.as_fd(), PollFlags::OUT),
                Err(_) => return false,
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::digest::sha256;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn capture_keeps_beginning_and_end_for_any_chunks(
            length in HEAD - 10..HEAD + 3 * TAIL,
            sizes in prop::collection::vec(1_usize..400_000, 1..12),
        ) {
            let stream: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let mut capture = Capture::default();
            let (mut rest, mut sizes) = (stream.as_slice(), sizes.iter().cycle());
            while !rest.is_empty() {
                let (part, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                capture.add(part);
                rest = after;
            }
            let mut expected = stream.clone();
            if length > HEAD + TAIL {
                expected.drain(HEAD..length - TAIL);
                prop_assert_eq!(capture.gap(), Some((HEAD, (length - HEAD - TAIL) as u64)));
            }
            prop_assert_eq!(capture.total, length as u64);
            prop_assert!(capture.bytes() == expected);
            prop_assert_eq!(capture.sha256(), sha256(&stream));
        }
    }
}
