//! The mount view, built on an empty root from the system's programs and settings, the declared paths, and private
//! scratch directories. Other paths do not exist in it, because the old root is detached after the view is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::pieces::{detached, open_in, open_known, open_there, system, wanted};
use super::plan::{HOME, Network, OWN_FILES, Operation, Plan, RUNNABLE, TMP, View, lies_in};
use super::report::{At, Enforcement, Failure};
use super::sys::{self, Attributes, NO_SUID_NO_DEV};
use crate::nofollow;

/// The link to [`TMP`] in place of the other directory for temporary files.
const VAR_TMP: &str = "/var/tmp";

/// Directories that are private to the command, because other programs use them as well. Declared paths in them are
/// mounted inside.
const PRIVATE: [&str; 4] = [TMP, VAR_TMP, "/run", SHARED_MEMORY];

/// The most files in a private directory.
const INODES: u32 = 1 << 20;

/// Shared memory. It is part of the private `/dev`.
const SHARED_MEMORY: &str = "/dev/shm";

/// The message queues of the run. Landlock has no other path for them.
pub(super) const MESSAGE_QUEUES: &str = "/dev/mqueue";

/// The devices of the private `/dev`. `tty` is the controlling terminal of the process that opens it.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The names of the loopback interface.
const LOOPBACK_NAMES: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";

/// The settings of the resolver, if names are served in the sandbox. Modules of the machine's `nsswitch.conf` ask other
/// programs.
const RESOLVER_FILES: [(&str, &str); 2] = [
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    // With one question at a time a slow start of the resolver costs no second question.
    ("/etc/resolv.conf", "nameserver 127.0.0.53\noptions ndots:1 timeout:5 attempts:2\n"),
];

/// The path of the old root during the construction of the new one.
const OLD: &str = "/.old";
const COPY: &str = "/.copy";

/// The socket of the supervisor inside the sandbox.
pub(crate) const SUPERVISOR: &str = "/run/cp-exec/supervisor";

/// Builds the view in the private mount namespace of this run. Returns the listening socket at [`SUPERVISOR`].
pub(super) fn build(plan: &Plan, enforcement: &mut Enforcement) -> Result<OwnedFd, Failure> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).at("mount")?;
    let hosts = hosts(plan.network_kind());
    let mut replaced: Vec<(&str, &str)> = vec![("/etc/hosts", &hosts)];
    if plan.network_kind() == Network::Names {
        replaced.extend(RESOLVER_FILES);
    }
    let (system, links) = system(plan.profile, &replaced.iter().map(|(path, _)| *path).collect::<Vec<_>>());
    enter(plan.script.as_ref().map_or(0, |(_, text)| text.len())).at("root")?;

    let pieces = wanted(plan, system);
    let (private, others): (Vec<_>, Vec<_>) =
        pieces.iter().partition(|(path, _)| PRIVATE.iter().any(|private| lies_in(path, Path::new(private))));
    others.into_iter().try_for_each(|(path, attributes)| show(plan, path, *attributes))?;
    private_tmp(plan).at("tmp")?;
    private_dev(plan.limits.scratch_bytes).at("dev")?;
    proc(plan, enforcement)?;
    protect_surroundings(&private)?;
    private.into_iter().try_for_each(|(path, attributes)| show(plan, path, *attributes))?;
    let of_system = links.iter().chain(&plan.view.links).map(|link| (link.at.as_path(), link.to.as_path()));
    for (at, to) in of_system.chain([(Path::new(VAR_TMP), Path::new(TMP))]) {
        make(at, || rustix::fs::symlink(to, at)).at("link")?;
    }
    replaced.iter().try_for_each(|(path, text)| replace(path, text))?;
    if let Some((script, text)) = &plan.script {
        // Later changes of the script have no effect.
        cover_with_text(&script.path, text, 0o555)?;
    }
    for directory in [Path::new(HOME), plan.tmpdir()] {
        // In the `/tmp` of a session an earlier command may have replaced it, so the mode is set only on creation.
        match fs::create_dir(directory) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => made.and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o777))).at("home")?,
        }
    }
    if plan.tmpdir() != Path::new(TMP) {
        cover(plan.tmpdir(), None, Attributes::Clear(libc::MOUNT_ATTR_NOEXEC))?;
    }
    pin(plan)?;
    let shown = pieces.iter().map(|(path, _)| path.as_path()).chain([TMP, "/dev", "/proc"].map(Path::new));
    restrict(plan, &shown.collect::<Vec<_>>())?;
    let clients = listen().at("supervisor socket")?;
    let write = |(name, text): &(String, Vec<u8>)| fs::write(Path::new(OWN_FILES).join(name), text);
    plan.view.files.iter().try_for_each(write).at("own files")?;
    finish().at("finish")?;
    Ok(clients)
}

/// The text of the `hosts` file. The sandbox has a name of its own, and reaches the addresses in the file of the
/// machine only in the network of the machine.
fn hosts(network: Network) -> String {
    let of_machine = || fs::read_to_string("/etc/hosts").unwrap_or_default();
    let names = if network == Network::Host { of_machine() } else { LOOPBACK_NAMES.to_owned() };
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{}\n127.0.0.1 {own}\n::1 {own}\n", names.trim_end())
}

/// Creates an empty root and enters it. The old root stays mounted until [`finish`].
fn enter(script: usize) -> io::Result<()> {
    // A directory that every machine has. It is covered only until the new root is moved away from it.
    let at = "/proc";
    // Mount points, a few links, and the copy of the script.
    scratch(at, "755", (4 << 20) + 2 * script as u64, 65536, MountFlags::empty())?;
    rustix::process::chdir(at)?;
    fs::create_dir(".old")?;
    rustix::process::pivot_root(".", ".old")?;
    Ok(rustix::process::chdir("/")?)
}

/// Creates the socket of the supervisor. Every user inside the sandbox may connect to it.
fn listen() -> io::Result<OwnedFd> {
    let at = Path::new(SUPERVISOR);
    fs::create_dir_all(at.parent().unwrap_or(at))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(at)?)?;
    rustix::net::listen(&listener, 128)?;
    fs::set_permissions(at, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Detaches the old root, and makes the new one read-only.
fn finish() -> io::Result<()> {
    rustix::mount::unmount(OLD, UnmountFlags::DETACH)?;
    fs::remove_dir(OLD)?;
    rustix::process::chdir("/")?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV;
    sys::set_mount_attributes(CWD, Attributes::Set(attributes), 0)
}

/// Mounts a path of the machine, if it exists.
fn show(plan: &Plan, path: &Path, attributes: u64) -> Result<(), Failure> {
    let Some((file, stat)) = open_in(Path::new(OLD), path, plan.view.node_of(path))? else { return Ok(()) };
    let target = place(path, FileType::from_raw_mode(stat.st_mode).is_dir());
    let shown = target.and_then(|target| attach(&detached(&file)?, Attributes::Set(attributes), &target));
    // Only the `/tmp` of a session can contain links of an earlier command.
    match shown.as_ref().err().and_then(|_| nofollow::first_link(path)) {
        Some(link) => Err(Failure::changed(&link, "it is a link that an earlier command created")),
        None => shown.at(&format!("bind {}", path.display())),
    }
}

/// Creates a file of the system with other contents, or covers it where a declared tree contains it.
fn replace(path: &str, text: &str) -> Result<(), Failure> {
    if Path::new(path).exists() {
        // The file of the machine may be a link, whose target the view contains only if it is declared.
        return cover_with_text(&fs::canonicalize(path).at(path)?, text.as_bytes(), 0o644);
    }
    fs::create_dir_all("/etc").and_then(|()| fs::write(path, text)).at(path)
}

/// Mounts an empty `/tmp`, or that of the session, and hides the other directory for temporary files of a declared tree.
fn private_tmp(plan: &Plan) -> io::Result<()> {
    let execution = if plan.runs_from_tmp() { MountFlags::empty() } else { MountFlags::NOEXEC };
    match &plan.view.session_tmp {
        Some(directory) => {
            let tree = clone_of(&Path::new(OLD).join(directory.strip_prefix("/").unwrap_or(directory)))?;
            let attributes = NO_SUID_NO_DEV | if plan.runs_from_tmp() { 0 } else { libc::MOUNT_ATTR_NOEXEC };
            attach(&tree, Attributes::Set(attributes), &place(Path::new(TMP), true)?)?;
        }
        None => scratch(TMP, "1777", plan.limits.scratch_bytes, INODES, execution)?,
    }
    if fs::symlink_metadata(VAR_TMP).is_ok_and(|meta| meta.is_dir()) {
        scratch(VAR_TMP, "1777", 1 << 20, INODES, MountFlags::NOEXEC)?;
    }
    Ok(())
}

/// Makes the directories read-only that lie between `/tmp` and the paths that are shown in it: a file that a command
/// writes beside its project would vanish with its own `/tmp`.
fn protect_surroundings(shown: &[&(PathBuf, u64)]) -> Result<(), Failure> {
    let mut around = BTreeSet::new();
    for (path, _) in shown {
        let Some(top) = path.ancestors().find(|above| above.parent() == Some(Path::new(TMP))) else { continue };
        let is_own = [HOME, RUNNABLE].map(Path::new).contains(&top);
        if is_own || shown.iter().any(|(shown, _)| shown == top) {
            continue;
        }
        // The mount point, which cannot be made later. Its failure is reported when the path is shown.
        if let Some((_, stat)) = open_in(Path::new(OLD), path, None)? {
            drop(place(path, FileType::from_raw_mode(stat.st_mode).is_dir()));
            around.insert(top);
        }
    }
    around.into_iter().try_for_each(make_read_only)
}

/// Opens a mount point in the new root, and creates it unless it exists. Fails if a link is on its path.
fn place(path: &Path, directory: bool) -> io::Result<OwnedFd> {
    if let Some(there) = nofollow::open(path)? {
        return Ok(there);
    }
    make(path, || {
        if directory {
            rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))
        } else {
            rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
        }
    })?;
    Ok(nofollow::open(path)?.ok_or(ErrorKind::NotFound)?)
}

/// Makes a path with its parents, unless it exists. Nothing is made in a declared tree that is read-only.
fn make(path: &Path, attempt: impl Fn() -> rustix::io::Result<()>) -> io::Result<()> {
    let mut made = attempt();
    if made == Err(Errno::NOENT) {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        made = attempt();
    }
    match made {
        Ok(()) | Err(Errno::EXIST | Errno::ROFS) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A detached clone of the mounts at a path without links.
fn clone_of(path: &Path) -> io::Result<OwnedFd> {
    detached(&nofollow::open(path)?.ok_or(ErrorKind::NotFound)?)
}

/// Attaches a detached mount with these attributes to an open file or directory.
fn attach(tree: &OwnedFd, attributes: Attributes, target: &OwnedFd) -> io::Result<()> {
    if attributes != Attributes::Set(0) {
        sys::set_mount_attributes(tree.as_fd(), attributes, libc::AT_RECURSIVE)?;
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", target, "", flags)?)
}

/// Covers a file with a text, so that later changes of the file have no effect.
fn cover_with_text(path: &Path, text: &[u8], mode: u32) -> Result<(), Failure> {
    let (target, _) = open_there(path, None)?;
    let covered = || -> io::Result<()> {
        fs::write(COPY, text)?;
        fs::set_permissions(COPY, fs::Permissions::from_mode(mode))?;
        attach(&clone_of(Path::new(COPY))?, Attributes::Set(libc::MOUNT_ATTR_RDONLY | NO_SUID_NO_DEV), &target)?;
        fs::remove_file(COPY)
    };
    covered().at(&format!("cover {}", path.display()))
}

/// The lowest `pid_max` that the kernel accepts: it reserves the first 300 pids.
pub(super) const LEAST_PID_MAX: u64 = 301;

/// Mounts a new file system.
fn fresh(kind: &str, at: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    fs::create_dir_all(at)?;
    Ok(rustix::mount::mount(kind, at, kind, MountFlags::NOSUID | flags, CString::new(options)?.as_c_str())?)
}

fn scratch(path: &str, mode: &str, bytes: u64, inodes: u32, execution: MountFlags) -> io::Result<()> {
    let options = format!("mode={mode},size={bytes},nr_inodes={inodes}");
    fresh("tmpfs", path, MountFlags::NODEV | execution, &options)
}

/// Mounts a `/dev` with the devices, shared memory, the message queues of this IPC namespace, and an empty `/dev/pts`,
/// whose pseudo-terminals are those of the command.
fn private_dev(bytes: u64) -> io::Result<()> {
    fresh("tmpfs", "/dev", MountFlags::NOEXEC, "mode=755,size=65536,nr_inodes=64")?;
    let dev = Path::new("/dev");
    for name in DEVICES {
        let tree = clone_of(&Path::new(OLD).join("dev").join(name))?;
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

/// Mounts a `/proc` that shows no other processes, and sets the pid limit of this namespace. In a container that hides
/// parts of its own it is empty.
fn proc(plan: &Plan, enforcement: &mut Enforcement) -> Result<(), Failure> {
    if let Err(e) = fresh("proc", "/proc", MountFlags::NODEV | MountFlags::NOEXEC, "") {
        enforcement.missing.push(format!("proc: {e}"));
        return scratch("/proc", "555", 4096, 16, MountFlags::NOEXEC).at("proc");
    }
    // Older kernels have one global limit.
    if own_pid_limit() {
        drop(fs::write("/proc/sys/kernel/pid_max", plan.limits.processes.max(LEAST_PID_MAX).to_string()));
    }
    Ok(())
}

/// Entries without permissions, used to cover masked paths. A hidden file becomes a device that leads nowhere and that
/// cannot be opened in its mount: programs that read each regular file that they find leave it out.
const EMPTY_DIRECTORY: &str = "/.empty-directory";
const EMPTY_KEEP: &str = "/.empty-keep";
const HIDDEN_FILE: &str = "/.hidden-file";

/// Makes each directory above a protected or hidden path a mount point. A directory that is not a mount point could
/// be renamed, together with its protected content, and replaced.
fn pin(plan: &Plan) -> Result<(), Failure> {
    let inside = |path: &&Path| plan.view.of(Operation::Write).any(|root| lies_in(path, root) && *path != root);
    let pinned = plan.view.places.iter().filter(|place| place.is_pinned);
    let mut way: Vec<&Path> = pinned.flat_map(|place| place.path.ancestors().skip(1).filter(inside)).collect();
    way.sort();
    way.dedup();
    way.into_iter().try_for_each(|directory| cover(directory, None, Attributes::Set(0)))
}

/// The operations that restrict paths of declared trees, each path once and after the directory that contains it. A
/// path whose operation changes nothing in a restricted directory is omitted.
fn restrictions<'v>(view: &'v View, shown: &[&Path]) -> BTreeMap<&'v Path, Operation> {
    let declared = view.places.iter().filter(|place| place.operation > Operation::Execute);
    // Of other paths the view has no more than the mount points above what it shows.
    let is_visible = |path: &Path| shown.iter().any(|tree| lies_in(path, tree));
    let mut all: BTreeMap<&Path, Operation> = BTreeMap::new();
    for place in declared.filter(|place| place.operation < Operation::Empty || is_visible(&place.path)) {
        let known = all.entry(&place.path).or_insert(place.operation);
        *known = place.operation.max(*known);
    }
    // The restricted directories around the current path.
    let mut around: Vec<(&Path, Operation)> = Vec::new();
    all.retain(|path, operation| {
        while around.pop_if(|(outer, _)| !lies_in(path, outer)).is_some() {}
        let outer = around.last().map_or(Operation::Writable, |(_, outer)| *outer);
        let changes = *operation != outer && outer < Operation::Empty;
        around.extend(changes.then_some((*path, *operation)));
        changes
    });
    all
}

/// Makes paths read-only or hides them.
fn restrict(plan: &Plan, shown: &[&Path]) -> Result<(), Failure> {
    let made = || -> io::Result<_> {
        for (path, mode) in [(EMPTY_DIRECTORY, 0o000), (EMPTY_KEEP, 0o555)] {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        rustix::fs::mknodat(CWD, HIDDEN_FILE, FileType::CharacterDevice, Mode::empty(), 0)?;
        kernel_files()
    };
    let mut view = plan.view.clone();
    for (path, operation) in made().at("mask")? {
        view.add(operation, false, [path]);
    }
    let hidden = Attributes::Set(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV);
    for (path, operation) in restrictions(&view, shown) {
        match operation {
            // The first three show a path.
            Operation::Read | Operation::Write | Operation::Execute => {}
            Operation::Writable => cover(path, None, Attributes::Clear(libc::MOUNT_ATTR_RDONLY))?,
            Operation::ReadOnly => make_read_only(path)?,
            Operation::Empty => cover(path, Some(EMPTY_KEEP), hidden)?,
            Operation::Hidden => cover(path, Some(EMPTY_DIRECTORY), hidden)?,
        }
    }
    let removed = fs::remove_dir(EMPTY_DIRECTORY).and_then(|()| fs::remove_dir(EMPTY_KEEP));
    removed.and_then(|()| fs::remove_file(HIDDEN_FILE)).at("mask")
}

/// Makes an existing path read-only.
pub(super) fn make_read_only(path: &Path) -> Result<(), Failure> {
    cover(path, None, Attributes::Set(libc::MOUNT_ATTR_RDONLY))
}

/// Covers an existing path with itself, or with a directory where it is one and [`HIDDEN_FILE`] where not. The
/// attributes apply to the new mount.
fn cover(path: &Path, with: Option<&str>, attributes: Attributes) -> Result<(), Failure> {
    let Some((target, stat)) = open_known(path, None)? else { return Ok(()) };
    let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    let tree = match with {
        None => detached(&target),
        Some(directory) => clone_of(Path::new(if is_directory { directory } else { HIDDEN_FILE })),
    };
    tree.and_then(|tree| attach(&tree, attributes, &target)).at(&format!("cover {}", path.display()))
}

/// The parts of `/proc` that belong to no process, each to be hidden or read-only. Root could write to them even
/// without capabilities, and read what other users cannot.
fn kernel_files() -> io::Result<Vec<(PathBuf, Operation)>> {
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
pub(super) fn own_pid_limit() -> bool {
    let release = rustix::system::uname();
    let mut parts = release.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return false };
    (major, minor) >= (6, 14)
}
