//! SIGINT and SIGTERM as a flag and a pipe: a wait wakes up, the work unwinds, a closing line is left.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::wire::{Code, Error, Result};

struct Signals {
    seen: Arc<AtomicBool>,
    wake: UnixStream,
}

static SIGNALS: OnceLock<Option<Signals>> = OnceLock::new();

/// Starts to notice SIGINT and SIGTERM. Where that fails they end the program at once, as without it.
pub(crate) fn install() {
    SIGNALS.get_or_init(|| {
        let (wake, sender) = UnixStream::pair().ok()?;
        let seen = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&seen)).ok()?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone().ok()?).ok()?;
        }
        // A file at its size limit is then an error of the write, which can be told, and not the end of the program.
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).ok()?;
        Some(Signals { seen, wake })
    });
}

fn installed() -> Option<&'static Signals> {
    SIGNALS.get().and_then(Option::as_ref)
}

/// Whether SIGINT or SIGTERM has come.
pub fn interrupted() -> bool {
    installed().is_some_and(|signals| signals.seen.load(Ordering::Relaxed))
}

/// Fails with [`Code::Interrupted`] once a signal has come: to be called between steps of long work.
pub fn check() -> Result<()> {
    if interrupted() { Err(Error::new(Code::Interrupted, "interrupted by a signal")) } else { Ok(()) }
}

/// Waits until `fd` can be read, or a signal comes, or the time is over. True when it can be read (or has ended).
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Option<Duration>) -> Result<bool> {
    wait_either(fd, None, limit)
}

/// As [`wait_readable`], and `other` wakes it too. True when `fd` can be read.
pub fn wait_either(fd: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Result<bool> {
    check()?;
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let wake = installed().map(|signals| signals.wake.as_fd());
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        fds.extend([wake, other].into_iter().flatten().map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        match poll(&mut fds, limit.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => {
                check()?;
                return Ok(!fds[0].revents().is_empty());
            }
            Err(Errno::INTR) => check()?,
            Err(e) => return Err(Error::io("waiting for input", e)),
        }
    }
}

/// Whether `fd` has bytes (or its end) now.
pub(crate) fn readable_now(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0) && fds[0].revents().contains(PollFlags::IN)
}
