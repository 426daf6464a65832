//! Changes of a mode to one with set-id bits, which the supervisor makes for their caller: a directory may pass its
//! group on, and a file does not get the bits, because other users could execute it after the run.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::lookup::Lookup;
use super::memory::Memory;
use super::seccomp::MODES;
use super::sys::{self, Notification};

/// The set-group-id bit.
const SET_GROUP_ID: u32 = 0o2000;
/// The bits of a mode without the set-id bits.
const WITHOUT_SET_ID: u32 = 0o1777;

/// Makes the change of a suspended call.
pub(super) fn change(listener: BorrowedFd<'_>, call: &Notification) -> io::Result<()> {
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
    let descriptor = Some(call.descriptor());
    let opened = |descriptor| lookup.start(descriptor).map_err(|_| Errno::BADF);
    if call.number == libc::SYS_fchmod {
        return Ok(opened(descriptor)?);
    }
    // `chmod` has no descriptor of a directory.
    let (descriptor, path) =
        if mode_of(call) == 1 { (None, call.arguments[0]) } else { (descriptor, call.arguments[1]) };
    let path = PathBuf::from(OsString::from_vec(Memory::of(call.thread).string(path)?));
    let start = opened(descriptor.filter(|fd| *fd != libc::AT_FDCWD && !path.is_absolute()))?;
    let has =
        |flag: i32| call.number == libc::SYS_fchmodat2 && call.arguments[3] & u64::from(flag.cast_unsigned()) != 0;
    if path.as_os_str().is_empty() && has(libc::AT_EMPTY_PATH) {
        return Ok(start);
    }
    let Some(name) = path.file_name().filter(|_| has(libc::AT_SYMLINK_NOFOLLOW)) else {
        return Ok(lookup.find(start, &path)?.file);
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = lookup.find(start, parent)?.file;
    Ok(rustix::fs::openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// The user and the groups with whose rights a thread works on files.
fn rights_of(thread: i32) -> io::Result<(u32, Vec<u32>)> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let numbers = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().filter_map(|number| number.parse().ok()).collect::<Vec<u32>>()
    };
    let of_files = |name| numbers(name).get(3).copied().ok_or(Errno::SRCH);
    let group = of_files("Gid:")?;
    Ok((of_files("Uid:")?, numbers("Groups:").into_iter().chain([group]).collect()))
}
