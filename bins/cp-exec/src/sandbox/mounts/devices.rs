//! The private `/dev` and `/proc`, and file systems in memory.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::{MESSAGE_QUEUES, SHARED_MEMORY, attach, place};
use crate::sandbox::plan::{Operation, Plan};
use crate::sandbox::report::{At, Enforcement, Failure};
use crate::sandbox::sys::Attributes;

/// The lowest `pid_max` that the kernel accepts: it reserves the first 300 pids.
pub(in super::super) const LEAST_PID_MAX: u64 = 301;

/// Mounts a new file system.
fn fresh(kind: &str, at: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    fs::create_dir_all(at)?;
    Ok(rustix::mount::mount(kind, at, kind, MountFlags::NOSUID | flags, CString::new(options)?.as_c_str())?)
}

pub(super) fn scratch(path: &str, mode: &str, bytes: u64, inodes: u32, execution: MountFlags) -> io::Result<()> {
    let options = format!("mode={mode},size={bytes},nr_inodes={inodes}");
    fresh("tmpfs", path, MountFlags::NODEV | execution, &options)
}

/// Mounts a `/dev` with the devices, shared memory, the message queues of this IPC namespace, and an empty `/dev/pts`,
/// whose pseudo-terminals are those of the command.
pub(super) fn private_dev(devices: Vec<(&str, OwnedFd)>, bytes: u64) -> io::Result<()> {
    fresh("tmpfs", "/dev", MountFlags::NOEXEC, "mode=755,size=65536,nr_inodes=64")?;
    let dev = Path::new("/dev");
    for (name, tree) in devices {
        // It can be written, but its mode, owner and times cannot be changed, which are those of the machine.
        attach(&tree, Attributes::Set(libc::MOUNT_ATTR_RDONLY), &place(&dev.join(name), false)?)?;
    }
    let links =
        [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")];
    for (name, target) in links {
        symlink(target, dev.join(name))?;
    }
    scratch(SHARED_MEMORY, "1777", bytes, 4096, MountFlags::NOEXEC)?;
    fresh("mqueue", MESSAGE_QUEUES, MountFlags::NODEV | MountFlags::NOEXEC, "")?;
    fresh("devpts", "/dev/pts", MountFlags::NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
}

/// Mounts a `/proc` that shows no other processes: an empty one in a container that hides parts of its own.
pub(super) fn proc(plan: &Plan, enforcement: &mut Enforcement) -> Result<(), Failure> {
    let Err(e) = own_proc(plan) else { return Ok(()) };
    enforcement.missing.push(format!("proc: {e}"));
    scratch("/proc", "555", 4096, 16, MountFlags::NOEXEC).at("proc")
}

/// Mounts a `/proc` for this namespace, and sets the pid limit of the namespace.
fn own_proc(plan: &Plan) -> io::Result<()> {
    fresh("proc", "/proc", MountFlags::NODEV | MountFlags::NOEXEC, "")?;
    // Older kernels have one global limit.
    if own_pid_limit() {
        drop(fs::write("/proc/sys/kernel/pid_max", plan.limits.processes.max(LEAST_PID_MAX).to_string()));
    }
    Ok(())
}

/// The parts of `/proc` that belong to no process, each to be hidden or read-only. Root could write to them even without
/// capabilities, and read what other users cannot.
pub(super) fn kernel_files() -> io::Result<Vec<(PathBuf, Operation)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let is_of_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // A process may have ended meanwhile.
        let Some(meta) = entry.metadata().ok().filter(|meta| !is_of_process && !meta.is_symlink()) else { continue };
        let mode = meta.permissions().mode();
        if mode & 0o004 == 0 || name == "keys" {
            found.push((entry.path(), Operation::Hidden));
        } else if meta.is_dir() || mode & 0o222 != 0 {
            found.push((entry.path(), Operation::ReadOnly));
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
