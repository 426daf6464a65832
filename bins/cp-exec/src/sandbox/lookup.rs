//! Resolves paths as another process sees them, including the links of `/proc` that stand for its own files.
//!
//! The kernel resolves `/proc/self` for the process that asks, and follows `/proc/PID/exe` and the like to files that
//! have no path. A lookup therefore walks from the root or the directory of the other process, one name at a time.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, Result};

/// The most links that a path may lead through, as in the kernel.
const LINKS: usize = 40;
/// The inode of the root directory of each procfs.
const PROC_ROOT: u64 = 1;
const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A file that a lookup found.
pub(super) struct Found {
    pub file: OwnedFd,
    /// False if the last name was a link of `/proc` to an open file, so that the path does not name the file.
    pub is_named: bool,
}

/// The view of one thread.
pub(super) struct Lookup {
    thread: i32,
    root: OwnedFd,
}

impl Lookup {
    pub(super) fn of(thread: i32) -> Result<Self> {
        Ok(Self {
            thread,
            root: rustix::fs::open(format!("/proc/{thread}/root"), PATH | OFlags::DIRECTORY, Mode::empty())?,
        })
    }

    /// The working directory of the thread, or an open file of it.
    pub(super) fn start(&self, descriptor: Option<i32>) -> Result<OwnedFd> {
        let name = descriptor.map_or_else(|| "cwd".to_owned(), |descriptor| format!("fd/{descriptor}"));
        rustix::fs::open(format!("/proc/{}/{name}", self.thread), PATH, Mode::empty())
    }

    /// The file at a path, which may be relative to `at`.
    pub(super) fn find(&self, mut at: OwnedFd, path: &Path) -> Result<Found> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
        let (mut rest, mut links, mut is_named) = (Vec::new(), 0, true);
        at = self.enter(at, path.as_os_str().as_bytes(), &mut rest)?;
        while let Some(name) = rest.pop() {
            if name == b".." {
                if !is_same(&at, &self.root)? {
                    at = rustix::fs::openat(&at, "..", PATH | OFlags::DIRECTORY, Mode::empty())?;
                }
                continue;
            }
            let next = rustix::fs::openat(&at, &*name, PATH | OFlags::NOFOLLOW, Mode::empty())?;
            is_named = true;
            if FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) != FileType::Symlink {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(Errno::LOOP);
            }
            let of_proc = rustix::fs::fstatfs(&next)?.f_type == libc::PROC_SUPER_MAGIC;
            let directory = rustix::fs::fstat(&at)?;
            match &*name {
                b"self" | b"thread-self" if of_proc && directory.st_ino == PROC_ROOT => {
                    let [process, thread] = self.numbers(directory.st_dev)?;
                    if name == b"thread-self" {
                        rest.extend([thread.into_bytes(), b"task".to_vec()]);
                    }
                    rest.push(process.into_bytes());
                }
                _ if of_proc && directory.st_ino != PROC_ROOT => {
                    at = rustix::fs::openat(&at, &*name, PATH, Mode::empty())?;
                    is_named = false;
                }
                _ => {
                    let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
                    at = self.enter(at, target.to_bytes(), &mut rest)?;
                }
            }
        }
        Ok(Found { file: at, is_named })
    }

    /// Puts the names of a path in front of the rest, and returns the directory where it starts.
    fn enter(&self, at: OwnedFd, path: &[u8], rest: &mut Vec<Vec<u8>>) -> Result<OwnedFd> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        rest.extend(names.rev().map(<[u8]>::to_vec));
        if path.starts_with(b"/") { rustix::io::fcntl_dupfd_cloexec(&self.root, 0) } else { Ok(at) }
    }

    /// The numbers of the process and the thread in the procfs on a device: the one of this program, or that of the
    /// sandbox, which cannot create further namespaces.
    fn numbers(&self, device: u64) -> Result<[String; 2]> {
        let is_ours = rustix::fs::stat("/proc")?.st_dev == device;
        let status = fs::read_to_string(format!("/proc/{}/status", self.thread)).map_err(|_| Errno::SRCH)?;
        let number = |name: &str| {
            let mut numbers = status.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace();
            if is_ours { numbers.next() } else { numbers.next_back() }
        };
        let [process, thread] = ["NStgid:", "NSpid:"].map(|name| number(name).map(str::to_owned));
        Ok([process.ok_or(Errno::SRCH)?, thread.ok_or(Errno::SRCH)?])
    }
}

/// True if both are the same directory of the same mount.
fn is_same(a: impl AsFd, b: impl AsFd) -> Result<bool> {
    let identity = |file: &dyn AsFd| {
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::MNT_ID)?;
        Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino, found.stx_mnt_id))
    };
    Ok(identity(&a)? == identity(&b)?)
}
