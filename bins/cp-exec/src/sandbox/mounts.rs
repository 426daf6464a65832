//! The mount view, built on an empty root from the system's programs and settings, the declared paths, and private
//! scratch directories. Other paths do not exist in it, because the old root is detached after the view is complete.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use super::pieces::{Piece, detached, pieces};
use super::plan::{Layer, Network, Plan, TMP, Terminals, View};
use super::report::{Enforcement, Failure};
use super::sys::{self, Attributes, NO_SUID_NO_DEV};
use crate::nofollow;

/// Directories that are private to the command, because other programs use them as well.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// Shared memory. It is part of the private `/dev`.
const SHARED_MEMORY: &str = "/dev/shm";

/// The devices of the private `/dev`.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The device that is the controlling terminal of the process that opens it.
const TERMINAL: &str = "tty";

/// The settings of the resolver, if names are served in the sandbox. The names in the `hosts` file of the machine have
/// addresses that the sandbox does not reach, and modules of the machine's `nsswitch.conf` ask other programs.
const RESOLVER_FILES: [(&str, &str); 3] = [
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    // With one question at a time a slow start of the resolver costs no second question.
    ("/etc/resolv.conf", "nameserver 127.0.0.53\noptions ndots:1 timeout:5 attempts:2\n"),
];

/// The path of the old root during the construction of the new one.
const OLD: &str = "/.old";
/// Empty entries without permissions, used to cover masked paths.
const EMPTY_DIRECTORY: &str = "/.empty-directory";
const EMPTY_KEEP: &str = "/.empty-keep";
const EMPTY_FILE: &str = "/.empty-file";
const SCRIPT: &str = "/.script";
const REPLACEMENT: &str = "/.replacement";

/// The socket of the supervisor inside the sandbox.
pub(crate) const SUPERVISOR: &str = "/run/cp-exec/supervisor";

/// The lowest `pid_max` that the kernel accepts: it reserves the first 300 pids.
pub(super) const LEAST_PID_MAX: u64 = 301;

/// Builds the view in the private mount namespace of this run. Returns the listening socket at [`SUPERVISOR`].
pub(super) fn build(plan: &Plan, enforcement: &mut Enforcement) -> Result<OwnedFd, Failure> {
    build_view(plan, enforcement).map_err(|failure| failure.of_layer(Layer::Mount))
}

fn build_view(plan: &Plan, enforcement: &mut Enforcement) -> Result<OwnedFd, Failure> {
    let setup = |step: &'static str| move |e: io::Error| Failure::setup(step, e);
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| Failure::setup("mount_private", e))?;
    // All pieces are cloned from the old root first, because the new root does not contain their paths.
    let replaced: &[(&str, &str)] = if plan.network_kind() == Network::Names { &RESOLVER_FILES } else { &[] };
    let (pieces, links) = pieces(plan, &replaced.iter().map(|(path, _)| *path).collect::<Vec<_>>())?;
    let terminal = (plan.terminals != Terminals::None).then_some(TERMINAL);
    let devices = DEVICES.into_iter().chain(terminal);
    let devices = devices.map(|name| Ok((name, take_system(&Path::new("/dev").join(name))?)));
    let devices = devices.collect::<io::Result<Vec<_>>>().map_err(setup("dev"))?;
    let session_tmp = plan.view.session_tmp.as_deref().map(|path| take_session_tmp(path, plan.runs_from_tmp()));
    let session_tmp = session_tmp.transpose().map_err(setup("session_tmp"))?;
    let text = plan.script_text.as_deref();
    let root = enter(text.map_or(0, <[u8]>::len)).map_err(setup("root"))?;

    let mut places = NewRoot::default();
    let is_private = |piece: &&Piece| PRIVATE.iter().chain([&SHARED_MEMORY]).any(|path| piece.path.starts_with(path));
    for piece in pieces.iter().filter(|piece| !is_private(piece)) {
        places.attach(piece)?;
    }
    for path in PRIVATE {
        let lasting = session_tmp.as_ref().filter(|_| path == "/tmp");
        places.private(plan, path, lasting).map_err(|e| Failure::setup(path, e))?;
    }
    private_dev(devices, plan.limits.scratch_bytes).map_err(setup("dev"))?;
    if plan.terminals != Terminals::None {
        private_terminals().map_err(setup("terminals"))?;
    }
    places.directories.push((SHARED_MEMORY.into(), false));
    // Declared paths in a private directory are mounted inside it.
    for piece in pieces.iter().filter(is_private) {
        places.attach(piece)?;
    }
    proc(plan, enforcement)?;
    for (at, to) in links.iter().chain(&plan.view.links) {
        places.link(at, to).map_err(setup("link"))?;
    }
    replaced.iter().try_for_each(|(path, text)| places.replace(path, text))?;
    if let (Some(script), Some(text)) = (&plan.script, text) {
        copy_script(&script.path, text)?;
    }
    for directory in [Path::new("/tmp/home"), plan.tmpdir()] {
        // In the `/tmp` of a session an earlier command may have replaced it, so the mode is set only on creation.
        match fs::create_dir(directory) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => made
                .and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o777)))
                .map_err(setup("home"))?,
        }
    }
    if plan.tmpdir() != Path::new(TMP) {
        cover(plan.tmpdir(), None, Attributes::Clear(libc::MOUNT_ATTR_NOEXEC))?;
    }
    pin(plan)?;
    restrict(plan, &places)?;
    let clients = listen().map_err(setup("supervisor socket"))?;
    finish(&root).map_err(setup("finish"))?;
    Ok(clients)
}

/// Creates an empty root and enters it. The old root stays mounted until [`finish`].
fn enter(script: usize) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Mount points, a few links, and the copy of the script.
    let size = (4 << 20) + 2 * script;
    for (name, value) in [("mode", "755".to_owned()), ("size", size.to_string()), ("nr_inodes", "65536".to_owned())] {
        rustix::mount::fsconfig_set_string(&context, name, value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    rustix::mount::move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    rustix::process::fchdir(&root)?;
    fs::create_dir(".old")?;
    rustix::process::pivot_root(".", ".old")?;
    rustix::process::chdir("/")?;
    Ok(root)
}

/// Creates the socket of the supervisor. Every user inside the sandbox may connect to it.
fn listen() -> io::Result<OwnedFd> {
    let at = Path::new(SUPERVISOR);
    fs::create_dir_all(at.parent().unwrap_or(at))?;
    let listener = UnixListener::bind(at)?;
    fs::set_permissions(at, fs::Permissions::from_mode(0o666))?;
    Ok(listener.into())
}

/// Detaches the old root, and makes the new one read-only.
fn finish(root: &OwnedFd) -> io::Result<()> {
    rustix::mount::unmount(OLD, UnmountFlags::DETACH)?;
    fs::remove_dir(OLD)?;
    rustix::process::chdir("/")?;
    sys::set_mount_attributes(
        root.as_fd(),
        Attributes::Set(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV),
        0,
    )
}

/// The contents of the new root so far.
#[derive(Default)]
struct NewRoot {
    /// Directories, and true for those of the old root, in which nothing is created.
    directories: Vec<(PathBuf, bool)>,
    files: Vec<PathBuf>,
}

impl NewRoot {
    fn in_a_tree(&self, path: &Path) -> bool {
        // A private directory is separate from the tree around it.
        let holds = |(directory, old): &&(PathBuf, bool)| path.starts_with(directory) && (path != directory || !old);
        let around = self.directories.iter().filter(holds);
        around.max_by_key(|(directory, _)| directory.as_os_str().len()).is_some_and(|(_, old)| *old)
    }

    fn attach(&mut self, piece: &Piece) -> Result<(), Failure> {
        let bind = |e: io::Error| Failure::setup(&format!("bind {}", piece.path.display()), e);
        sys::set_mount_attributes(piece.tree.as_fd(), Attributes::Set(piece.attributes), libc::AT_RECURSIVE)
            .map_err(bind)?;
        if self.in_a_tree(&piece.path) {
            put(&piece.tree, &open_piece(piece)?).map_err(bind)?;
        } else {
            // Only the `/tmp` of a session can contain links of an earlier command.
            if let Some(link) = nofollow::first_link(&piece.path) {
                return Err(Failure::changed(&link, "it is a link that an earlier command created"));
            }
            make_place(&piece.path, piece.directory).map_err(|e| Failure::setup("place", e))?;
            let target = nofollow::open(&piece.path).and_then(|target| target.ok_or(ErrorKind::NotFound.into()));
            put(&piece.tree, &target.map_err(bind)?).map_err(bind)?;
        }
        if piece.directory {
            self.directories.push((piece.path.clone(), true));
        } else {
            self.files.push(piece.path.clone());
        }
        Ok(())
    }

    /// Creates a file of the system with other contents, or covers it where a declared tree contains it.
    fn replace(&self, path: &str, text: &str) -> Result<(), Failure> {
        let setup = |e: io::Error| Failure::setup(path, e);
        if !self.in_a_tree(Path::new(path)) {
            let write = || {
                fs::create_dir_all("/etc")?;
                fs::write(path, text)
            };
            return write().map_err(setup);
        }
        // The file of the machine may be a link, whose target the view contains only if it is declared.
        let place = fs::canonicalize(path).map_err(setup)?;
        fs::write(REPLACEMENT, text).map_err(setup)?;
        let covered = cover(
            &place,
            Some([EMPTY_DIRECTORY, REPLACEMENT]),
            Attributes::Set(libc::MOUNT_ATTR_RDONLY | NO_SUID_NO_DEV),
        );
        fs::remove_file(REPLACEMENT).map_err(setup)?;
        covered
    }

    /// True if a path can show more than mount points.
    fn shows(&self, path: &Path) -> bool {
        let directories = self.directories.iter().map(|(directory, _)| directory.as_path());
        let all = directories.chain(["/dev", "/proc"].map(Path::new)).chain(self.files.iter().map(PathBuf::as_path));
        all.into_iter().any(|shown| path.starts_with(shown))
    }

    /// Mounts a private directory, if the view contains it: `/tmp` always, others if a declared path lies in them.
    /// The directory of a session is mounted instead of an empty one.
    fn private(&mut self, plan: &Plan, path: &str, lasting: Option<&OwnedFd>) -> io::Result<()> {
        let at = Path::new(path);
        let bytes = if path == "/tmp" { plan.limits.scratch_bytes } else { 1 << 20 };
        let runs = path == TMP && plan.runs_from_tmp();
        let execution = if runs { MountFlags::empty() } else { MountFlags::NOEXEC };
        if path == "/tmp" && !self.in_a_tree(at) {
            fs::create_dir_all(at)?;
        }
        // A missing directory needs no replacement, and a link points to another private directory.
        if fs::symlink_metadata(at).is_ok_and(|meta| meta.is_dir()) {
            match lasting {
                Some(tree) => {
                    put_at(tree, at)?;
                    if let Some((uid, gid)) = plan.run_as {
                        std::os::unix::fs::chown(at, Some(uid), Some(gid))?;
                    }
                }
                None => scratch(path, "1777", bytes, 131_072, execution)?,
            }
            self.directories.push((at.to_owned(), false));
        }
        Ok(())
    }

    /// Creates a link, unless the path exists or lies in a directory of the old root.
    fn link(&self, at: &Path, to: &Path) -> io::Result<()> {
        if self.in_a_tree(at) {
            return Ok(());
        }
        let made = symlink(to, at).or_else(|e| match at.parent() {
            Some(parent) if e.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(parent)?;
                symlink(to, at)
            }
            _ => Err(e),
        });
        made.or_else(|e| if e.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
    }
}

/// Opens the path of a piece in a tree of the old root, and checks that it is unchanged.
fn open_piece(piece: &Piece) -> Result<OwnedFd, Failure> {
    let fault = |e: io::Error| Failure::changed(&piece.path, &e.to_string());
    let Some(target) = nofollow::open(&piece.path).map_err(fault)? else {
        return Err(Failure::changed(&piece.path, "it no longer exists"));
    };
    if nofollow::node(&target).map_err(fault)? != piece.node {
        return Err(Failure::changed(&piece.path, "it is not what was there when it was checked"));
    }
    Ok(target)
}

/// Creates a mount point in the new root.
fn make_place(path: &Path, directory: bool) -> io::Result<()> {
    let place = || -> rustix::io::Result<()> {
        if directory {
            rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))
        } else {
            rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
        }
    };
    let made = place().or_else(|e| match path.parent() {
        // The parent directory does not exist yet.
        Some(parent) if e == Errno::NOENT => {
            fs::create_dir_all(parent)?;
            Ok(place()?)
        }
        _ => Err(io::Error::from(e)),
    });
    made.or_else(|e| if e.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
}

/// Clones the mounts at a path of the system, which no command can change.
fn take_system(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(CWD, path, flags)?)
}

/// A detached mount of the directory that is the `/tmp` of a session.
fn take_session_tmp(path: &Path, runs: bool) -> io::Result<OwnedFd> {
    let tree = detached(&nofollow::open(path)?.ok_or(ErrorKind::NotFound)?)?;
    let flags = if runs { NO_SUID_NO_DEV } else { libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV };
    sys::set_mount_attributes(tree.as_fd(), Attributes::Set(flags), libc::AT_RECURSIVE)?;
    Ok(tree)
}

/// Attaches a detached mount to an open file or directory.
fn put(tree: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", target, "", flags)?)
}

/// Attaches a detached mount to a path in the new root.
fn put_at(tree: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn scratch(path: &str, mode: &str, bytes: u64, inodes: u32, execution: MountFlags) -> io::Result<()> {
    let options = CString::new(format!("mode={mode},size={bytes},nr_inodes={inodes}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | execution;
    Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str())?)
}

fn private_dev(devices: Vec<(&str, OwnedFd)>, bytes: u64) -> io::Result<()> {
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

/// Mounts an empty `/dev/pts`. Its pseudo-terminals are those of the command.
fn private_terminals() -> io::Result<()> {
    fs::create_dir("/dev/pts")?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount("devpts", "/dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")?;
    symlink("pts/ptmx", "/dev/ptmx")
}

/// Mounts a `/proc` that shows no other processes.
fn proc(plan: &Plan, enforcement: &mut Enforcement) -> Result<(), Failure> {
    fs::create_dir_all("/proc").map_err(|e| Failure::setup("proc", e))?;
    if enforcement.has(Layer::Pid) {
        let Err(e) = own_proc(plan) else { return Ok(()) };
        enforcement.missing.push(format!("proc: {e}"));
    } else if sys::landlock_abi() > 0 {
        // The `/proc` of the machine. Landlock denies access to other processes through it.
        let machine = take_system(&Path::new(OLD).join("proc")).and_then(|tree| {
            sys::set_mount_attributes(
                tree.as_fd(),
                Attributes::Set(libc::MOUNT_ATTR_RDONLY | NO_SUID_NO_DEV),
                libc::AT_RECURSIVE,
            )?;
            let target = nofollow::open(Path::new("/proc"))?.ok_or(io::ErrorKind::NotFound)?;
            put(&tree, &target)
        });
        return machine.map_err(|e| Failure::setup("proc", e));
    } else {
        enforcement
            .missing
            .push("proc: without a process namespace and Landlock it would lead to other processes".to_owned());
    }
    scratch("/proc", "555", 4096, 16, MountFlags::NOEXEC).map_err(|e| Failure::setup("proc", e))
}

/// Mounts a `/proc` for this namespace, sets the pid limit of the namespace, and makes the mount read-only, because
/// root could write to `/proc/sys` even without capabilities.
fn own_proc(plan: &Plan) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)?;
    // Older kernels have one global limit.
    if own_pid_limit() {
        drop(fs::write("/proc/sys/kernel/pid_max", plan.limits.processes.max(LEAST_PID_MAX).to_string()));
    }
    let proc =
        rustix::fs::open("/proc", rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    sys::set_mount_attributes(proc.as_fd(), Attributes::Set(libc::MOUNT_ATTR_RDONLY), libc::AT_RECURSIVE)
}

/// True if `pid_max` is per namespace in this kernel, which holds from 6.14 on.
pub(super) fn own_pid_limit() -> bool {
    let release = rustix::system::uname();
    let mut parts = release.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return false };
    (major, minor) >= (6, 14)
}

/// Covers a script with a copy of the text that was hashed, so that later changes of the file have no effect.
fn copy_script(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let fault = |e: io::Error| Failure::changed(path, &e.to_string());
    let Some(target) = nofollow::open(path).map_err(fault)? else {
        return Err(Failure::changed(path, "it no longer exists"));
    };
    let copied = || -> io::Result<()> {
        fs::write(SCRIPT, text)?;
        fs::set_permissions(SCRIPT, fs::Permissions::from_mode(0o555))?;
        let tree = take_system(Path::new(SCRIPT))?;
        sys::set_mount_attributes(tree.as_fd(), Attributes::Set(libc::MOUNT_ATTR_RDONLY | NO_SUID_NO_DEV), 0)?;
        put(&tree, &target)?;
        fs::remove_file(SCRIPT)
    };
    copied().map_err(|e| Failure::setup("script", e))
}

/// Makes each directory above a protected or hidden path a mount point. A directory that is not a mount point could
/// be renamed, together with its protected content, and replaced.
fn pin(plan: &Plan) -> Result<(), Failure> {
    let view = &plan.view;
    let inside = |path: &&Path| view.write.iter().any(|root| path.starts_with(root) && *path != root);
    let pinned = view.protect.iter().chain(&view.mask).chain(&view.read).chain(&view.write).chain(&view.execute);
    let mut way: Vec<&Path> = pinned.flat_map(|path| path.ancestors().skip(1).filter(inside)).collect();
    way.sort();
    way.dedup();
    way.into_iter().try_for_each(|directory| cover(directory, None, Attributes::Set(0)))
}

/// The restriction of a path inside the declared trees. If several apply to one path, the last one in this order wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Restriction {
    Writable,
    ReadOnly,
    /// Empty, but readable, because programs that search a whole tree fail at an unreadable directory.
    Empty,
    /// Empty and without permissions.
    Hidden,
}

/// The restrictions of a plan, each path once and after the directory that contains it. A path whose restriction
/// changes nothing in a restricted directory is omitted.
fn restrictions<'a>(view: &'a View, places: &NewRoot) -> Vec<(&'a Path, Restriction)> {
    let writable = view.writable.iter().map(|path| (path, Restriction::Writable));
    let protected = view.protect.iter().chain(&view.protect_found).map(|path| (path, Restriction::ReadOnly));
    let masked = view.mask.iter().chain(&view.mask_found).map(|path| (path, Restriction::Hidden));
    let hidden = view.kept.iter().map(|path| (path, Restriction::Empty)).chain(masked);
    let mut all: BTreeMap<&Path, Restriction> = BTreeMap::new();
    for (path, restriction) in writable.chain(protected).chain(hidden.filter(|(path, _)| places.shows(path))) {
        let known = all.entry(path).or_insert(restriction);
        *known = restriction.max(*known);
    }
    // The restricted directories around the current path.
    let mut around: Vec<(&Path, Restriction)> = Vec::new();
    all.retain(|path, restriction| {
        while around.pop_if(|(outer, _)| !path.starts_with(outer)).is_some() {}
        let outer = around.last().map_or(Restriction::Writable, |(_, outer)| *outer);
        let changes = *restriction != outer && outer < Restriction::Empty;
        around.extend(changes.then_some((*path, *restriction)));
        changes
    });
    all.into_iter().collect()
}

/// Makes paths read-only or hides them.
fn restrict(plan: &Plan, places: &NewRoot) -> Result<(), Failure> {
    let created = [(EMPTY_DIRECTORY, 0o000), (EMPTY_KEEP, 0o555)];
    let made = || -> io::Result<()> {
        for (path, mode) in created {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        fs::write(EMPTY_FILE, "")?;
        fs::set_permissions(EMPTY_FILE, fs::Permissions::from_mode(0o000))
    };
    made().map_err(|e| Failure::setup("mask", e))?;
    let hidden = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV;
    for (path, restriction) in restrictions(&plan.view, places) {
        match restriction {
            Restriction::Writable => cover(path, None, Attributes::Clear(libc::MOUNT_ATTR_RDONLY)),
            Restriction::ReadOnly => cover(path, None, Attributes::Set(libc::MOUNT_ATTR_RDONLY)),
            Restriction::Empty => cover(path, Some([EMPTY_KEEP, EMPTY_FILE]), Attributes::Set(hidden)),
            Restriction::Hidden => cover(path, Some([EMPTY_DIRECTORY, EMPTY_FILE]), Attributes::Set(hidden)),
        }?;
    }
    let removed =
        || created.iter().try_for_each(|(path, _)| fs::remove_dir(path)).and_then(|()| fs::remove_file(EMPTY_FILE));
    removed().map_err(|e| Failure::setup("mask", e))
}

/// Covers an existing path with itself, or with an empty directory or file. The attributes apply to the new mount.
fn cover(path: &Path, with: Option<[&str; 2]>, attributes: Attributes) -> Result<(), Failure> {
    let target = nofollow::open(path).map_err(|e| Failure::changed(path, &e.to_string()))?;
    let Some(target) = target else { return Ok(()) };
    let covered = || -> io::Result<()> {
        let tree = match with {
            None => detached(&target)?,
            Some([directory, file]) => {
                let stat = rustix::fs::fstat(&target)?;
                let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
                take_system(Path::new(if is_directory { directory } else { file }))?
            }
        };
        if attributes != Attributes::Set(0) {
            sys::set_mount_attributes(tree.as_fd(), attributes, libc::AT_RECURSIVE)?;
        }
        put(&tree, &target)
    };
    covered().map_err(|e| Failure::setup(&format!("cover {}", path.display()), e))
}
