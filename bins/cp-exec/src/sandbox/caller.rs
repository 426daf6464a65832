//! The caller of a suspended system call: the memory and the paths of another process, and changes of a mode that the
//! supervisor makes for it.
//!
//! The kernel resolves `/proc/self` for the process that asks, and follows `/proc/PID/exe` and the like to files that
//! have no path. A lookup therefore walks from the root or the directory of the other process, one name at a time.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, Result};

use super::seccomp::MODES;
use super::sys::{self, Notification};

/// The most bytes of arguments, or of the environment, that are read. The kernel accepts no more.
pub(super) const LONGEST: usize = 6 << 20;
const PAGE: usize = 4096;
const POINTER: usize = size_of::<u64>();

/// The memory of another process.
pub(super) struct Memory {
    thread: i32,
    /// The page that was read last, with its address, because strings are adjacent.
    page: Option<(u64, [u8; PAGE])>,
}

impl Memory {
    pub(super) fn of(thread: i32) -> Self {
        Self { thread, page: None }
    }

    /// The bytes from an address to the end of its page.
    fn page_from(&mut self, address: u64) -> io::Result<&[u8]> {
        let offset = usize::try_from(address).unwrap_or_default() % PAGE;
        let start = address - offset as u64;
        let known = self.page.take().filter(|(known, _)| *known == start);
        let page = if let Some(page) = known {
            page
        } else {
            let mut bytes = [0; PAGE];
            sys::read_memory(self.thread, start, &mut bytes)?;
            (start, bytes)
        };
        Ok(&self.page.insert(page).1[offset..])
    }

    fn pointer(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; POINTER];
        sys::read_memory(self.thread, address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads a string up to its NUL byte.
    pub(super) fn string(&mut self, mut address: u64) -> io::Result<Vec<u8>> {
        let mut string = Vec::new();
        loop {
            let part = self.page_from(address)?;
            if let Some(end) = memchr::memchr(0, part) {
                string.extend_from_slice(&part[..end]);
                return Ok(string);
            }
            string.extend_from_slice(part);
            address += part.len() as u64;
            if string.len() > LONGEST {
                return Err(io::ErrorKind::ArgumentListTooLong.into());
            }
        }
    }

    /// Reads a list of pointers to strings up to its null pointer. A null pointer to the list counts as an empty
    /// list, as in the kernel.
    pub(super) fn list(&mut self, address: u64) -> io::Result<Vec<Vec<u8>>> {
        let (mut list, mut total, mut at) = (Vec::new(), 0, address);
        while address != 0
            && let string @ 1.. = self.pointer(at)?
        {
            let string = self.string(string)?;
            total += POINTER + string.len();
            if total > LONGEST {
                return Err(io::ErrorKind::ArgumentListTooLong.into());
            }
            list.push(string);
            at += POINTER as u64;
        }
        Ok(list)
    }
}

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

    /// An open file of the thread.
    pub(super) fn opened(&self, descriptor: i32) -> Result<OwnedFd> {
        let path = format!("/proc/{}/fd/{descriptor}", self.thread);
        rustix::fs::open(path, PATH, Mode::empty()).map_err(|_| Errno::BADF)
    }

    /// The file at a path, which may be relative to an open directory or to the working directory of the thread.
    pub(super) fn find(&self, directory: Option<i32>, path: &Path) -> Result<Found> {
        self.look_up(directory, path, true)
    }

    /// The same, or without `follows` the link that the last name may be.
    fn look_up(&self, directory: Option<i32>, path: &Path, follows: bool) -> Result<Found> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
        let (mut rest, mut links, mut is_named) = (Vec::new(), 0, true);
        let start = match directory.filter(|_| !path.is_absolute()) {
            Some(directory) => self.opened(directory)?,
            None => rustix::fs::open(format!("/proc/{}/cwd", self.thread), PATH, Mode::empty())?,
        };
        let mut at = self.enter(start, path.as_os_str().as_bytes(), &mut rest)?;
        while let Some(name) = rest.pop() {
            if name == b".." {
                if !is_same(&at, &self.root)? {
                    at = rustix::fs::openat(&at, "..", PATH | OFlags::DIRECTORY, Mode::empty())?;
                }
                continue;
            }
            let next = rustix::fs::openat(&at, &*name, PATH | OFlags::NOFOLLOW, Mode::empty())?;
            is_named = true;
            let is_link = FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) == FileType::Symlink;
            if !is_link || rest.is_empty() && !follows {
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
        let number = |name| {
            let numbers = numbers_of(self.thread, name)?;
            let number = if is_ours { numbers.first() } else { numbers.last() };
            number.map(u32::to_string).ok_or(Errno::SRCH)
        };
        Ok([number("NStgid:")?, number("NSpid:")?])
    }
}

/// The numbers on a line of the status of a thread.
pub(super) fn numbers_of(thread: i32, name: &str) -> Result<Vec<u32>> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| Errno::SRCH)?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    Ok(line.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect())
}

/// True if both are the same directory of the same mount.
fn is_same(a: impl AsFd, b: impl AsFd) -> Result<bool> {
    let identity = |file: &dyn AsFd| {
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::MNT_ID)?;
        Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino, found.stx_mnt_id))
    };
    Ok(identity(&a)? == identity(&b)?)
}

/// The set-group-id bit.
const SET_GROUP_ID: u32 = 0o2000;
/// The bits of a mode without the set-id bits.
const WITHOUT_SET_ID: u32 = 0o1777;

/// Makes a change of a mode to one with set-id bits for its caller: a directory may pass its group on, and a file does
/// not get the bits, because other users could execute it after the run.
pub(super) fn change_mode(listener: BorrowedFd<'_>, call: &Notification) -> io::Result<()> {
    let file = file_of(call)?;
    let (user, groups) = rights_of(call.thread)?;
    // The file and the rights belong to the caller only if it was suspended all the time.
    if !sys::notification_is_valid(listener, call.id) {
        return Err(Errno::SRCH.into());
    }
    let stat = rustix::fs::fstat(&file)?;
    let asked = u32::try_from(call.arguments[mode_of(call)] & 0o7777).unwrap_or_default();
    let kept = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => return Err(Errno::OPNOTSUPP.into()),
        FileType::Directory if groups.contains(&stat.st_gid) => WITHOUT_SET_ID | SET_GROUP_ID,
        _ => WITHOUT_SET_ID,
    };
    if stat.st_uid != user {
        return Err(Errno::PERM.into());
    }
    // Through its mount in the caller's view, which may be read-only.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(asked & kept))?)
}

/// The index of the argument that is the mode.
fn mode_of(call: &Notification) -> usize {
    MODES.iter().find(|(number, _)| *number == call.number).map_or(0, |(_, mode)| *mode as usize)
}

/// The file of a call.
fn file_of(call: &Notification) -> io::Result<OwnedFd> {
    let lookup = Lookup::of(call.thread)?;
    if call.number == libc::SYS_fchmod {
        return Ok(lookup.opened(call.descriptor())?);
    }
    let flags = if call.number == libc::SYS_fchmodat2 { call.arguments[3] } else { 0 };
    let no_follow = u64::from(libc::AT_SYMLINK_NOFOLLOW.cast_unsigned());
    if flags & !no_follow != 0 {
        // Programs that know other flags do without them on a kernel without the call.
        return Err(Errno::NOSYS.into());
    }
    // `chmod` has no descriptor of a directory.
    let (directory, path) =
        if mode_of(call) == 1 { (None, call.arguments[0]) } else { (call.directory(), call.arguments[1]) };
    let path = PathBuf::from(OsString::from_vec(Memory::of(call.thread).string(path)?));
    Ok(lookup.look_up(directory, &path, flags == 0)?.file)
}

/// The user and the groups with whose rights a thread works on files.
fn rights_of(thread: i32) -> Result<(u32, Vec<u32>)> {
    let of_files = |name| numbers_of(thread, name)?.get(3).copied().ok_or(Errno::SRCH);
    let mut groups = numbers_of(thread, "Groups:")?;
    groups.push(of_files("Gid:")?);
    Ok((of_files("Uid:")?, groups))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn string_lists_are_read_across_pages_up_to_limit() {
        let strings: Vec<CString> =
            (0..3 * PAGE).step_by(511).map(|length| CString::new(vec![b'x'; length]).unwrap()).collect();
        let pointers: Vec<u64> = strings.iter().map(|string| string.as_ptr().addr() as u64).chain([0]).collect();
        let mut memory = Memory::of(rustix::process::getpid().as_raw_nonzero().get());
        let expected: Vec<Vec<u8>> = strings.iter().map(|string| string.to_bytes().to_vec()).collect();
        assert_eq!(memory.list(pointers.as_ptr().addr() as u64).unwrap(), expected);
        assert_eq!(memory.list(0).unwrap(), Vec::<Vec<u8>>::new());
        // A list may begin at any address.
        let mut bytes = vec![0];
        bytes.extend(pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()));
        assert_eq!(memory.list(bytes[1..].as_ptr().addr() as u64).unwrap(), expected);
        let long = CString::new(vec![b'x'; LONGEST + PAGE]).unwrap();
        assert!(memory.string(long.as_ptr().addr() as u64).is_err());
        assert!(memory.string(1).is_err() && memory.string(u64::MAX).is_err());
    }
}
