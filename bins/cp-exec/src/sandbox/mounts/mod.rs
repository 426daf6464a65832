//! The mount view, built on an empty root from the system's programs and settings, the declared paths, and private
//! scratch directories. Other paths do not exist in it, because the old root is detached after the view is complete.

pub(super) mod devices;
mod restrictions;

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use self::devices::{message_queues, private_dev, private_terminals, proc, scratch};
pub(super) use self::restrictions::make_read_only;
use self::restrictions::{cover, pin, restrict};
use super::pieces::{Piece, detached, pieces};
use super::plan::{Layer, Network, OWN_FILES, Plan, TMP};
use super::report::{Enforcement, Failure};
use super::sys::{self, Attributes, NO_SUID_NO_DEV};
use crate::nofollow;

/// The link to [`TMP`] in place of the other directory for temporary files.
const VAR_TMP: &str = "/var/tmp";

/// Directories that are private to the command, because other programs use them as well.
const PRIVATE: [&str; 3] = [TMP, VAR_TMP, "/run"];

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
    build_view(plan, enforcement).map_err(|failure| failure.of_layer(Layer::Mount))
}

fn build_view(plan: &Plan, enforcement: &mut Enforcement) -> Result<OwnedFd, Failure> {
    let setup = |step: &'static str| move |e: io::Error| Failure::setup(step, e);
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| Failure::setup("mount_private", e))?;
    // All pieces are cloned from the old root first, because the new root does not contain their paths.
    let hosts = hosts(plan.network_kind());
    let mut replaced: Vec<(&str, &str)> = vec![("/etc/hosts", &hosts)];
    if plan.network_kind() == Network::Names {
        replaced.extend(RESOLVER_FILES);
    }
    let (pieces, links) = pieces(plan, &replaced.iter().map(|(path, _)| *path).collect::<Vec<_>>())?;
    let devices = DEVICES.into_iter().map(|name| Ok((name, take_system(&Path::new("/dev").join(name))?)));
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
    message_queues().map_err(setup("mqueue"))?;
    private_terminals().map_err(setup("terminals"))?;
    places.directories.push((SHARED_MEMORY.into(), false));
    // Declared paths in a private directory are mounted inside it.
    for piece in pieces.iter().filter(is_private) {
        places.attach(piece)?;
    }
    proc(plan, enforcement)?;
    for (at, to) in links.iter().chain(&plan.view.links) {
        places.link(at, to).map_err(setup("link"))?;
    }
    places.link(Path::new(VAR_TMP), Path::new(TMP)).map_err(setup("link"))?;
    replaced.iter().try_for_each(|(path, text)| places.replace(path, text))?;
    if let (Some(script), Some(text)) = (&plan.script, text) {
        // Later changes of the script have no effect.
        cover_with_text(&script.path, text, 0o555)?;
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
    let write = |(name, text): &(String, Vec<u8>)| fs::write(Path::new(OWN_FILES).join(name), text);
    plan.view.files.iter().try_for_each(write).map_err(setup("own files"))?;
    finish(&root).map_err(setup("finish"))?;
    Ok(clients)
}

/// The text of the `hosts` file. The sandbox has a name of its own, and reaches the addresses in the file of the
/// machine only in the network of the machine.
fn hosts(network: Network) -> String {
    let names = match network {
        Network::Host => fs::read_to_string("/etc/hosts").unwrap_or_default(),
        Network::None | Network::Loopback | Network::Names => LOOPBACK_NAMES.to_owned(),
    };
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{}\n127.0.0.1 {own}\n::1 {own}\n", names.trim_end())
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
        cover_with_text(&fs::canonicalize(path).map_err(setup)?, text.as_bytes(), 0o644)
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
                None => scratch(path, "1777", bytes, INODES, execution)?,
            }
            self.directories.push((at.to_owned(), false));
        }
        Ok(())
    }

    /// Creates a link, unless the path exists or lies in a directory of the old root.
    fn link(&self, at: &Path, to: &Path) -> io::Result<()> {
        if self.in_a_tree(at) { Ok(()) } else { make(at, || rustix::fs::symlink(to, at)) }
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
    make(path, || {
        if directory {
            rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))
        } else {
            rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
        }
    })
}

/// Makes a path with its parents, unless it exists.
fn make(path: &Path, attempt: impl Fn() -> rustix::io::Result<()>) -> io::Result<()> {
    let made = attempt().or_else(|e| match path.parent() {
        Some(parent) if e == Errno::NOENT => {
            fs::create_dir_all(parent)?;
            Ok(attempt()?)
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

/// Covers a file with a text, so that later changes of the file have no effect.
fn cover_with_text(path: &Path, text: &[u8], mode: u32) -> Result<(), Failure> {
    let fault = |e: io::Error| Failure::changed(path, &e.to_string());
    let target = nofollow::open(path).and_then(|target| target.ok_or(ErrorKind::NotFound.into())).map_err(fault)?;
    let covered = || -> io::Result<()> {
        fs::write(COPY, text)?;
        fs::set_permissions(COPY, fs::Permissions::from_mode(mode))?;
        let tree = take_system(Path::new(COPY))?;
        sys::set_mount_attributes(tree.as_fd(), Attributes::Set(libc::MOUNT_ATTR_RDONLY | NO_SUID_NO_DEV), 0)?;
        put(&tree, &target)?;
        fs::remove_file(COPY)
    };
    covered().map_err(|e| Failure::setup(&format!("cover {}", path.display()), e))
}
