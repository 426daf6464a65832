//! File locks with waits that a signal interrupts.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::signals;
use crate::wire::{Error, Result};

/// Time that an effect in progress waits for a lock after a signal, because it must be recorded.
const LAST: Duration = Duration::from_millis(500);
const SLICE: Duration = Duration::from_millis(20);

/// Locks an open file, waiting until it is unlocked. Fails if a signal arrives first, or, in an effect, shortly after
/// it.
pub fn lock(file: impl AsFd) -> Result<()> {
    let file = file.as_fd();
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK | Errno::INTR) => waited(file),
        Err(e) => Err(Error::io("cannot lock", e)),
    }
}

/// Opens the file at a path and locks it. Retries if the file was replaced or removed during the wait.
pub fn locked(path: &Path, open: impl Fn() -> Result<File>) -> Result<File> {
    loop {
        let file = open()?;
        lock(&file).map_err(|e| e.in_file(path).fatal())?;
        let ours = file.metadata().map_err(|e| Error::from(e).in_file(path).fatal())?;
        match path.metadata() {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => return Ok(file),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Error::from(e).in_file(path).fatal()),
        }
    }
}

/// Waits for the lock in a thread, because the kernel queues waiters in order, but the wait cannot be combined with the
/// signal pipe. An abandoned thread releases the lock as soon as it acquires it, because it then drops the last handle
/// of the file.
fn waited(file: BorrowedFd<'_>) -> Result<()> {
    let failed = |e: Errno| Error::io("waiting for a lock", e);
    let done = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?;
    let (theirs, told) = (file.try_clone_to_owned()?, done.try_clone()?);
    let waiter = std::thread::Builder::new().stack_size(64 << 10).spawn(move || take(&theirs, &told))?;
    let mut signalled = None;
    while !signals::outlasts(done.as_fd(), SLICE)? {
        let since = signalled.get_or_insert_with(Instant::now);
        if !signals::interrupted() {
            signalled = None;
        } else if since.elapsed() >= LAST {
            signals::check()?;
        }
    }
    waiter.join().unwrap_or(Err(Errno::IO)).map_err(failed)
}

fn take(file: &OwnedFd, told: &OwnedFd) -> Result<(), Errno> {
    let outcome = loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            outcome => break outcome,
        }
    };
    let _ = rustix::io::write(told, &1_u64.to_ne_bytes());
    outcome
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn lock_is_acquired_after_release() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [(); 2].map(|()| File::open(file.path()).unwrap());
        lock(&first).unwrap();
        assert!(second.try_lock().is_err(), "two have the lock");
        let asked = Instant::now();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            first.unlock().unwrap();
        });
        lock(&second).unwrap();
        assert!(asked.elapsed() >= Duration::from_millis(50));
        other.join().unwrap();
        assert!(File::open(file.path()).unwrap().try_lock().is_err(), "the waiter lost it again");
    }
}
