//! A repository's `.git` in the view of a run: a layer over the real one. What the command changes there stays in the layer, whose
//! descriptor goes to the program, and the program takes over what is harmless when the run has ended.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use super::plan::{Layer, Plan};
use super::report::{Enforcement, Failure, Report};
use super::{sys, wire};

/// Where the layers are while they are put in place. The command does not see it.
const SPACE: &str = "/tmp/.layers";

/// Covers every repository with a layer, and says so to the program; where that cannot be had, it is read-only.
pub(super) fn cover(plan: &Plan, enforcement: &mut Enforcement, socket: BorrowedFd<'_>) -> Result<(), Failure> {
    if plan.view.repositories.is_empty() || !enforcement.has(Layer::Mount) {
        return Ok(());
    }
    space(plan).map_err(|e| Failure::setup("layers", e))?;
    let user = enforcement.has(Layer::User);
    for (at, repository) in plan.view.repositories.iter().enumerate() {
        match layer(repository, at, user) {
            Ok(upper) => wire::send_report(socket, &Report::Layer(at), Some(upper.as_fd())),
            Err(e) => {
                read_only(repository).map_err(|e| Failure::setup("repository", e))?;
                enforcement.missing.push(format!("overlay: {e}, so {} is read-only", repository.display()));
            }
        }
    }
    rustix::mount::unmount(SPACE, UnmountFlags::DETACH)
        .map_err(io::Error::from)
        .and_then(|()| fs::remove_dir(SPACE))
        .map_err(|e| Failure::setup("layers", e))
}

fn space(plan: &Plan) -> io::Result<()> {
    fs::create_dir(SPACE)?;
    let options = std::ffi::CString::new(format!("mode=700,size={}", plan.limits.scratch_bytes))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("tmpfs", SPACE, "tmpfs", flags, options.as_c_str())?)
}

/// Mounts a layer over a directory, and gives the directory that holds what is changed.
fn layer(repository: &Path, at: usize, user: bool) -> io::Result<OwnedFd> {
    let directory =
        |path: &Path, flags| rustix::fs::open(path, flags | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    let lower = directory(repository, OFlags::PATH)?;
    let made = |name: &str| -> io::Result<OwnedFd> {
        let path = Path::new(SPACE).join(format!("{name}{at}"));
        fs::create_dir(&path)?;
        Ok(directory(&path, OFlags::RDONLY)?)
    };
    let (upper, work) = (made("upper")?, made("work")?);
    // The layer's own directory is what the command sees as the repository's.
    let as_lower = rustix::fs::fstat(&lower)?;
    let owner = (rustix::fs::Uid::from_raw(as_lower.st_uid), rustix::fs::Gid::from_raw(as_lower.st_gid));
    rustix::fs::fchown(&upper, Some(owner.0), Some(owner.1))?;
    rustix::fs::fchmod(&upper, Mode::from_raw_mode(as_lower.st_mode & 0o777))?;
    // By descriptor: a path in options would have to be quoted, and may be another by now.
    let by = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut options = format!("lowerdir={},upperdir={},workdir={}", by(&lower), by(&upper), by(&work));
    // In a user namespace the layer has no other features to turn off.
    options.push_str(if user { ",userxattr" } else { ",redirect_dir=off,metacopy=off,index=off,xino=off" });
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("overlay", repository, "overlay", flags, options.as_c_str())?;
    Ok(upper)
}

fn read_only(repository: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(CWD, repository, flags)?;
    sys::set_mount_attributes(tree.as_fd(), libc::MOUNT_ATTR_RDONLY, libc::AT_RECURSIVE)?;
    Ok(rustix::mount::move_mount(&tree, "", CWD, repository, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}
