//! Directories and files of the home: private, written atomically, and locked with waits that a signal interrupts.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::NamedTempFile;

use crate::output::line_to_stderr;
use crate::signals;
use crate::wire::{Code, Error, Result};

/// Creates a directory and its parents with mode 0700.
pub fn make_directory(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| {
        let hint = owner_hint(path).unwrap_or_else(|| "give --home a directory that can be written".to_owned());
        Error::io("creating the directory", e).in_file(path).hint(hint).fatal()
    })
}

/// Returns a hint if the file at a path, or else the nearest existing parent directory, belongs to another user and is
/// not shared.
pub(super) fn owner_hint(path: &Path) -> Option<String> {
    let (existing, meta) = path.ancestors().find_map(|path| Some((path, path.metadata().ok()?)))?;
    let (owner, own) = (meta.uid(), geteuid().as_raw());
    let is_shared = meta.mode() & 0o002 != 0;
    (owner != own && !is_shared).then(|| {
        let place = existing.display();
        format!("{place} belongs to uid {owner}, and this process runs as uid {own}; set CP_HOME or change its owner")
    })
}

/// Writes a file atomically with mode 0600. It is durable when this returns.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let directory = directory_of(path)?;
    let _effect = signals::effect();
    let written = staged(directory, bytes)
        .and_then(|file| Ok(file.persist(path).map(drop)?))
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|e| Error::io("writing", e).in_file(path))
}

/// Like [`write_whole`], but returns false and keeps the existing file if there is one.
pub fn create_whole(path: &Path, bytes: &[u8]) -> Result<bool> {
    let directory = directory_of(path)?;
    let _effect = signals::effect();
    let created = staged(directory, bytes).and_then(|file| match file.persist_noclobber(path) {
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        persisted => {
            persisted.map_err(std::io::Error::from).and_then(|_| File::open(directory)?.sync_all()).map(|()| true)
        }
    });
    created.map_err(|e| Error::io("creating", e).in_file(path))
}

fn directory_of(path: &Path) -> Result<&Path> {
    let directory = path.parent().ok_or_else(|| Error::new(Code::Io, "not a file name").in_file(path))?;
    make_directory(directory)?;
    Ok(directory)
}

/// Writes a temporary file, which is removed unless it is persisted.
fn staged(directory: &Path, bytes: &[u8]) -> std::io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix_in(".cp-", directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    Ok(file)
}

/// Time that an effect in progress waits for a lock after a signal, because it must be recorded.
const EFFECT_LIMIT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which standard error names the file that another process has locked.
const SILENCE: Duration = Duration::from_secs(1);

/// Locks an open file, waiting until it is unlocked. Fails if a signal arrives first, or, in an effect, shortly after
/// it.
pub fn lock(file: impl AsFd) -> Result<()> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK | Errno::INTR) => wait_in_thread(file.as_fd()),
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

/// Creates a lock file if it is absent, and locks it.
pub fn lock_file(path: &Path) -> Result<File> {
    directory_of(path)?;
    locked(path, || {
        let opened = File::options().create(true).append(true).mode(0o600).open(path);
        opened.map_err(|e| Error::io("opening", e).in_file(path).fatal())
    })
}

/// Waits for the lock in a thread, because the kernel queues waiters in order, but the wait cannot be combined with the
/// signal pipe. An abandoned thread releases the lock as soon as it acquires it, because it then drops the last handle
/// of the file.
fn wait_in_thread(file: BorrowedFd<'_>) -> Result<()> {
    let failed = |e: Errno| Error::io("waiting for a lock", e);
    let done = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?;
    let (shared_file, done_writer) = (file.try_clone_to_owned()?, done.try_clone()?);
    let waiter = std::thread::Builder::new().stack_size(64 << 10).spawn(move || take(&shared_file, &done_writer))?;
    let (begun, mut is_announced, mut signalled) = (Instant::now(), false, None);
    while !signals::outlasts(done.as_fd(), POLL_INTERVAL)? {
        if !is_announced && begun.elapsed() >= SILENCE {
            is_announced = true;
            let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
            line_to_stderr(&format!("waiting for another process that has locked {}", path.display()));
        }
        let since = signalled.get_or_insert_with(Instant::now);
        if !signals::interrupted() {
            signalled = None;
        } else if since.elapsed() >= EFFECT_LIMIT {
            signals::check()?;
        }
    }
    waiter.join().unwrap_or(Err(Errno::IO)).map_err(failed)
}

fn take(file: &OwnedFd, done_writer: &OwnedFd) -> Result<(), Errno> {
    let outcome = loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            outcome => break outcome,
        }
    };
    let _ = rustix::io::write(done_writer, &1_u64.to_ne_bytes());
    outcome
}

/// Removes the entries of a directory that are older than this, unless they are locked.
pub fn sweep(directory: &Path, age: Duration) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let written = entry.metadata().and_then(|meta| meta.modified()).ok();
        let since = written.and_then(|written| SystemTime::now().duration_since(written).ok());
        if since.is_some_and(|since| since > age)
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        }
    }
}

/// Expands a leading `~`.
pub fn expand(text: &str, home: &str) -> String {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        _ => text.to_owned(),
    }
}

/// Maximum number of links in a path, as in the kernel.
const LINKS: usize = 40;

/// Resolves a path as the kernel does: links are followed, even to a missing target, and `..` applies to the target.
pub fn resolved(path: &Path) -> PathBuf {
    resolved_below(Path::new(""), path)
}

/// Like [`resolved`], for a path below a directory whose own path is known to contain no links, so that it is not
/// resolved again.
pub fn resolved_below(root: &Path, path: &Path) -> PathBuf {
    let mut real = root.to_owned();
    // The remaining parts, the next one last. An absolute link target restarts at the root.
    let mut rest: Vec<PathBuf> = parts_of(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part.as_os_str() == ".." {
            real.pop();
            continue;
        }
        real.push(&part);
        if links == LINKS || root.starts_with(&real) {
            continue;
        }
        if let Ok(target) = real.read_link() {
            links += 1;
            real.pop();
            rest.extend(parts_of(&target));
        }
    }
    real
}

fn parts_of(path: &Path) -> Vec<PathBuf> {
    path.components()
        .filter(|part| !matches!(part, Component::CurDir))
        .rev()
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn write_whole_replaces_file_privately_without_leftovers() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/er/file");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn sweep_removes_old_entries_unless_they_are_locked() {
        let place = tempfile::tempdir().unwrap();
        for name in ["directory/below", "file", "locked"] {
            write_whole(&place.path().join(name), b"").unwrap();
        }
        let _lock = lock_file(&place.path().join("locked")).unwrap();
        sweep(place.path(), Duration::from_hours(1));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 3);
        sweep(place.path(), Duration::ZERO);
        let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["locked"]);
    }

    #[test]
    fn create_whole_keeps_existing_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        assert!(create_whole(&path, b"first").unwrap());
        assert!(!create_whole(&path, b"second").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }

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
