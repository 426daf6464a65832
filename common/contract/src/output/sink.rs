//! Writes to the standard streams: all bytes or an error.

use std::io::{IsTerminal as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::printable::{printable, printable_line};
use crate::wire::{Error, Result};

/// Writes to standard output.
pub(super) fn write_all(bytes: &[u8]) -> Result<()> {
    write_to(rustix::stdio::stdout(), bytes)
}

fn write_to(stdout: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stdout, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => return Err(Error::reader_gone()),
            Err(Errno::AGAIN) => wait_writable(stdout.as_fd())?,
            Err(e) => return Err(Error::io("writing standard output", e)),
        }
    }
    Ok(())
}

/// Waits until standard output is writable, because another process may have made the pipe non-blocking.
fn wait_writable(fd: BorrowedFd<'_>) -> Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(Error::io("waiting for standard output", e)),
    }
}

/// True if nobody reads the pipe of standard output.
pub(super) fn has_lost_reader() -> bool {
    let stdout = rustix::stdio::stdout();
    // Errors are reported even for an empty set of events.
    let mut fds = [PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

/// Time for a reader to make room for the closing line of an interrupted program.
const LAST: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Writes a short line if there is room for it, without a long wait and without a lock that the work may hold.
pub(super) fn write_last(fd: BorrowedFd<'_>, line: &[u8]) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    if poll(&mut fds, Some(&LAST)).is_ok_and(|ready| ready > 0) {
        let _ = write_to(fd, line);
    }
}

/// Writes text to standard error and escapes control characters, because a message may quote programs, names or models.
/// A failure is ignored, because it cannot be reported.
pub fn to_stderr(text: &str) {
    let _ = std::io::stderr().write_all(printable(text).as_bytes());
}

/// True if standard error is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Writes text that accompanies standard output, faint on a terminal.
pub(super) fn aside_to_stderr(text: &str) {
    if is_terminal() {
        let _ = write!(std::io::stderr(), "\x1b[2m{}\x1b[22m", printable(text));
    } else {
        to_stderr(text);
    }
}

/// Erases the current line of a terminal.
pub(super) fn erase_stderr_line() {
    let _ = std::io::stderr().write_all(b"\r\x1b[K");
}

/// Writes one line to standard error. Line feeds are escaped, so that quoted text cannot forge a second line.
pub fn line_to_stderr(line: &str) {
    to_stderr(&format!("{}\n", printable_line(line)));
}
