//! The mount view: everything read-only, declared writes writable, private scratch, and masks over secrets.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use super::plan::{Layer, Plan, Profile};
use super::report::{Enforcement, Failure};
use super::sys;

/// Directories that are private to the command: what others keep there is not its business.
const HIDDEN: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// The devices of the private `/dev`.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

const NO_SUID_NO_DEV: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// A piece of the old view that comes back in the new one.
struct Piece {
    path: PathBuf,
    tree: OwnedFd,
    attributes: u64,
    directory: bool,
}

/// Builds the view in this mount namespace, which belongs to this run alone.
pub(super) fn build(plan: &Plan, enforcement: &mut Enforcement) -> Result<(), Failure> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| Failure::setup("mount_private", e))?;
    // The pieces are taken before anything is read-only or hidden: a clone keeps the state of its moment.
    let pieces = pieces(plan)?;
    let devices = DEVICES
        .iter()
        .map(|name| Ok((*name, take(&Path::new("/dev").join(name))?)))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|e| Failure::setup("dev", e))?;
    read_only().map_err(|e| Failure::setup("mount_read_only", e))?;
    for path in HIDDEN {
        // A symbolic link leads to another of them.
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
            let bytes = if path == "/tmp" { plan.limits.scratch_bytes } else { 1 << 20 };
            scratch(path, "1777", bytes, 131_072).map_err(|e| Failure::setup(path, e))?;
        }
    }
    private_dev(devices, plan.limits.scratch_bytes).map_err(|e| Failure::setup("dev", e))?;
    if enforcement.has(Layer::Pid)
        && let Err(e) = own_proc(plan)
    {
        enforcement.missing.push(format!("proc: {e}"));
        scratch("/proc", "555", 4096, 16).map_err(|e| Failure::setup("proc", e))?;
    }
    for piece in pieces {
        attach(&piece).map_err(|e| Failure::setup(&format!("bind {}", piece.path.display()), e))?;
    }
    masks(plan).map_err(|e| Failure::setup("mask", e))?;
    protect(plan).map_err(|e| Failure::setup("protect", e))?;
    fs::create_dir("/tmp/home")
        .and_then(|()| fs::set_permissions("/tmp/home", fs::Permissions::from_mode(0o777)))
        .map_err(|e| Failure::setup("home", e))
}

/// Makes what is protected read-only, and every directory on the way to it a mount of its own: one that could be renamed
/// would leave its place free for another.
fn protect(plan: &Plan) -> io::Result<()> {
    let protected: Vec<&PathBuf> = plan.view.protect.iter().filter(|path| path.exists()).collect();
    let inside = |path: &&Path| plan.view.write.iter().any(|root| path.starts_with(root) && *path != root);
    let mut way: Vec<&Path> = protected.iter().flat_map(|path| path.ancestors().skip(1).filter(inside)).collect();
    way.sort();
    way.dedup();
    for directory in way {
        cover(directory, &take(directory)?, 0)?;
    }
    for path in protected {
        cover(path, &take(path)?, libc::MOUNT_ATTR_RDONLY)?;
    }
    Ok(())
}

/// The declared paths that the new view would otherwise hide or make read-only, outermost first.
fn pieces(plan: &Plan) -> Result<Vec<Piece>, Failure> {
    let hidden = |path: &Path| HIDDEN.iter().any(|hidden| path.starts_with(hidden));
    let within = |path: &Path, roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
    let program = [plan.exe.path.clone(), plan.cwd.path.clone()];
    let mut paths: Vec<&PathBuf> = plan.view.write.iter().collect();
    paths.extend(plan.view.read.iter().chain(&plan.view.execute).chain(&program).filter(|path| hidden(path)));
    paths.sort();
    paths.dedup();
    let mut pieces = Vec::new();
    for path in paths {
        let Ok(meta) = fs::metadata(path) else { continue };
        let writable = within(path, &plan.view.write);
        let holds_executables = plan.view.execute.iter().any(|held| held.starts_with(path))
            || within(path, &plan.view.execute)
            || plan.exe.path.starts_with(path);
        let mut attributes = NO_SUID_NO_DEV;
        if !writable {
            attributes |= libc::MOUNT_ATTR_RDONLY;
        }
        // A writable directory with execute paths in it cannot be noexec; there Landlock alone says what may run.
        if !holds_executables || (writable && plan.profile == Profile::Strict) {
            attributes |= libc::MOUNT_ATTR_NOEXEC;
        }
        let tree = take(path).map_err(|e| Failure::setup(&format!("bind {}", path.display()), e))?;
        pieces.push(Piece { path: path.clone(), tree, attributes, directory: meta.is_dir() });
    }
    Ok(pieces)
}

/// A detached copy of the mounts at a path.
fn take(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(CWD, path, flags)?)
}

/// Puts a detached mount at a path.
fn cover(path: &Path, tree: &OwnedFd, attributes: u64) -> io::Result<()> {
    if attributes != 0 {
        sys::set_mount_attributes(tree.as_fd(), attributes)?;
    }
    rustix::mount::move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

fn attach(piece: &Piece) -> io::Result<()> {
    // In a hidden directory the place to mount on is gone, and is made again in the private one.
    if !piece.path.exists() {
        if piece.directory {
            fs::create_dir_all(&piece.path)?;
        } else {
            if let Some(parent) = piece.path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&piece.path, "")?;
        }
    }
    cover(&piece.path, &piece.tree, piece.attributes)
}

/// Makes every mount of this namespace read-only.
fn read_only() -> io::Result<()> {
    let root =
        rustix::fs::open("/", rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    sys::set_mount_attributes(root.as_fd(), libc::MOUNT_ATTR_RDONLY | NO_SUID_NO_DEV)
}

fn scratch(path: &str, mode: &str, bytes: u64, inodes: u32) -> io::Result<()> {
    let options = std::ffi::CString::new(format!("mode={mode},size={bytes},nr_inodes={inodes}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str())?)
}

fn private_dev(devices: Vec<(&str, OwnedFd)>, bytes: u64) -> io::Result<()> {
    let options = std::ffi::CString::new("mode=755,size=65536,nr_inodes=64")?;
    rustix::mount::mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, options.as_c_str())?;
    let dev = Path::new("/dev");
    for (name, tree) in devices {
        let path = dev.join(name);
        fs::write(&path, "")?;
        cover(&path, &tree, 0)?;
    }
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        std::os::unix::fs::symlink(target, dev.join(name))?;
    }
    fs::create_dir(dev.join("shm"))?;
    scratch("/dev/shm", "1777", bytes, 4096)
}

/// Mounts a `/proc` that knows only this namespace, sets the namespace's own limit, and makes it read-only: without
/// any capability root could still write to `/proc/sys`.
fn own_proc(plan: &Plan) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)?;
    // The kernel reserves the first 300 numbers, and takes no lower limit. Older kernels have one limit for all.
    if fs::read_to_string("/proc/sys/kernel/pid_max").is_ok_and(|all| all.trim() != "") && own_pid_limit() {
        drop(fs::write("/proc/sys/kernel/pid_max", plan.limits.processes.max(301).to_string()));
    }
    let proc =
        rustix::fs::open("/proc", rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    sys::set_mount_attributes(proc.as_fd(), libc::MOUNT_ATTR_RDONLY)
}

/// Whether this kernel keeps the limit of process numbers by namespace: from 6.14 on.
fn own_pid_limit() -> bool {
    let release = rustix::system::uname();
    let mut parts = release.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return false };
    (major, minor) >= (6, 14)
}

/// Covers each masked path with something empty that cannot be opened.
fn masks(plan: &Plan) -> io::Result<()> {
    let (directory, file) = (Path::new("/tmp/.mask"), Path::new("/tmp/.mask-file"));
    fs::create_dir(directory)?;
    fs::write(file, "")?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o000))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o000))?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV;
    for path in &plan.view.mask {
        // What is not there, or lies in a hidden directory, needs no mask.
        let Ok(meta) = fs::metadata(path) else { continue };
        cover(path, &take(if meta.is_dir() { directory } else { file })?, attributes)?;
    }
    fs::remove_dir(directory)?;
    fs::remove_file(file)
}
