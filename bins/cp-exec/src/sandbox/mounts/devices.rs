//! The private `/dev` and `/proc`, and file systems in memory.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::{MESSAGE_QUEUES, SHARED_MEMORY, make_place, put_at};
use crate::sandbox::plan::Plan;
use crate::sandbox::report::{Enforcement, Failure};

/// The lowest `pid_max` that the kernel accepts: it reserves the first 300 pids.
pub(in super::super) const LEAST_PID_MAX: u64 = 301;

pub(super) fn scratch(path: &str, mode: &str, bytes: u64, inodes: u32, execution: MountFlags) -> io::Result<()> {
    let options = CString::new(format!("mode={mode},size={bytes},nr_inodes={inodes}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | execution;
    Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str())?)
}

pub(super) fn private_dev(devices: Vec<(&str, OwnedFd)>, bytes: u64) -> io::Result<()> {
    fs::create_dir_all("/dev")?;
    let options = CString::new("mode=755,size=65536,nr_inodes=64")?;
    rustix::mount::mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, options.as_c_str())?;
    let dev = Path::new("/dev");
    for (name, tree) in devices {
        let at = dev.join(name);
        make_place(&at, false)?;
        put_at(&tree, &at)?;
    }
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(target, dev.join(name))?;
    }
    fs::create_dir(dev.join("shm"))?;
    scratch(SHARED_MEMORY, "1777", bytes, 4096, MountFlags::NOEXEC)
}

/// Mounts the message queues of this IPC namespace.
pub(super) fn message_queues() -> io::Result<()> {
    fs::create_dir(MESSAGE_QUEUES)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("mqueue", MESSAGE_QUEUES, "mqueue", flags, None)?)
}

/// Mounts an empty `/dev/pts`. Its pseudo-terminals are those of the command.
pub(super) fn private_terminals() -> io::Result<()> {
    fs::create_dir("/dev/pts")?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount("devpts", "/dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")?;
    symlink("pts/ptmx", "/dev/ptmx")
}

/// Mounts a `/proc` that shows no other processes: an empty one in a container that hides parts of its own.
pub(super) fn proc(plan: &Plan, enforcement: &mut Enforcement) -> Result<(), Failure> {
    fs::create_dir_all("/proc").map_err(|e| Failure::setup("proc", e))?;
    let Err(e) = own_proc(plan) else { return Ok(()) };
    enforcement.missing.push(format!("proc: {e}"));
    scratch("/proc", "555", 4096, 16, MountFlags::NOEXEC).map_err(|e| Failure::setup("proc", e))
}

/// Mounts a `/proc` for this namespace, and sets the pid limit of the namespace.
fn own_proc(plan: &Plan) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)?;
    // Older kernels have one global limit.
    if own_pid_limit() {
        drop(fs::write("/proc/sys/kernel/pid_max", plan.limits.processes.max(LEAST_PID_MAX).to_string()));
    }
    Ok(())
}

/// The parts of `/proc` that belong to no process, and whether they are hidden or read-only. Root could write to them
/// even without capabilities, and read what other users cannot.
pub(super) fn kernel_files() -> io::Result<Vec<(PathBuf, bool)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let is_of_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // A process may have ended meanwhile.
        let Some(meta) = entry.metadata().ok().filter(|meta| !is_of_process && !meta.is_symlink()) else { continue };
        let mode = meta.permissions().mode();
        let is_hidden = mode & 0o004 == 0 || name == "keys";
        if is_hidden || meta.is_dir() || mode & 0o222 != 0 {
            found.push((entry.path(), is_hidden));
        }
    }
    Ok(found)
}

/// True if `pid_max` is per namespace in this kernel, which holds from 6.14 on.
pub(in super::super) fn own_pid_limit() -> bool {
    let release = rustix::system::uname();
    let mut parts = release.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return false };
    (major, minor) >= (6, 14)
}
