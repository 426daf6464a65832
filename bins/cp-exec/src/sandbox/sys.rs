//! System calls without a safe wrapper, each in a function that is safe to call here.
//!
//! The helper is single-threaded, so a fork leaves no locked lock and no thread behind.
#![expect(unsafe_code, reason = "the one place for system calls that no safe crate wraps")]

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::fcntl::AtFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustix::process::Pid;

/// Restrictions of every mount of a view.
pub(super) const NO_SUID_NO_DEV: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// A change of the attributes of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    Set(u64),
    Clear(u64),
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks this process into new namespaces, or into none. `None` in the child.
pub(super) fn fork_into(namespaces: i32) -> io::Result<Option<Pid>> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: this process has one thread, so the child may go on as any program would; without a stack of its own it
    // continues on a copy of this one. A process with one thread does not use the thread number that the C library
    // caches.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    Ok(Pid::from_raw(i32::try_from(check(pid)?).map_err(io::Error::other)?))
}

/// Makes the kernel kill this process when its parent ends.
pub(super) fn die_with_parent() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
}

/// Replaces the standard streams.
pub(super) fn become_streams([stdin, stdout, stderr]: &[impl AsFd; 3]) -> rustix::io::Result<()> {
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)
}

/// Opens the standard input again in this view, if it is `/dev/null`, whose mode could be changed by a descriptor of
/// another view.
pub(super) fn reopen_null_input() -> io::Result<()> {
    let stat = rustix::fs::fstat(rustix::stdio::stdin())?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    let is_null = rustix::fs::fstat(&null)?.st_rdev == stat.st_rdev;
    if is_null { Ok(rustix::stdio::dup2_stdin(null)?) } else { Ok(()) }
}

/// Replaces the standard streams by `/dev/null`.
pub(super) fn close_streams() -> rustix::io::Result<()> {
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    become_streams(&[&null, &null, &null])
}

/// Exits immediately, without exit handlers that the parent registered.
pub(super) fn leave(status: i32) -> ! {
    // SAFETY: the call does not return and touches no memory of ours.
    unsafe { libc::_exit(status) }
}

/// Executes the file behind a descriptor. Returns only on failure.
pub(super) fn execute(file: BorrowedFd<'_>, argv: &[CString], env: &[CString]) -> io::Error {
    let Err(error) = nix::unistd::execveat(file, c"", argv, env, AtFlags::AT_EMPTY_PATH);
    error.into()
}

/// Sets attributes of a mount, and with `libc::AT_RECURSIVE` of the mounts below it.
pub(super) fn set_mount_attributes(mount: BorrowedFd<'_>, change: Attributes, below: i32) -> io::Result<()> {
    let (set, clear) = match change {
        Attributes::Set(set) => (set, 0),
        Attributes::Clear(clear) => (0, clear),
    };
    let attributes = libc::mount_attr { attr_set: set, attr_clr: clear, propagation: 0, userns_fd: 0 };
    // SAFETY: the structure is the kernel's own and outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | below,
            ptr::from_ref(&attributes),
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Closes every descriptor from 3 on, except one.
pub(super) fn close_all_but(kept: i32) {
    let kept = u32::try_from(kept).unwrap_or(u32::MAX);
    // SAFETY: called in a child that has forgotten all descriptors of its parent, so none of them is closed twice.
    unsafe {
        if kept > 3 {
            libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept.saturating_add(1), u32::MAX, 0);
    }
}

/// Sets close-on-exec on every descriptor from 3 on.
pub(super) fn close_on_exec() -> io::Result<()> {
    // SAFETY: no descriptor is closed now.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) }).map(drop)
}

/// Blocks SIGCHLD, and SIGTTOU, which stops a process that changes the settings of its terminal from the background.
/// Returns a descriptor that is readable when SIGCHLD is pending.
pub(super) fn child_signals() -> nix::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    let pending = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    signals.add(Signal::SIGTTOU);
    signals.thread_block()?;
    Ok(pending)
}

/// Resets every signal to its default and unblocks it, as a fresh command expects.
pub(super) fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: no handler of ours is replaced but by the default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let _ = SigSet::empty().thread_set_mask();
}

/// Sends a signal to every process of this process namespace except its init, which must be this process.
pub(super) fn signal_all(signal: i32) {
    if rustix::process::getpid().as_raw_nonzero().get() == 1 {
        // SAFETY: sends a signal; as init of a namespace it reaches this namespace only.
        unsafe { libc::kill(-1, signal) };
    }
}

/// Enables the loopback interface of this network namespace.
pub(super) fn loopback_up() -> io::Result<()> {
    let ifru_flags = i16::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    set_interface("lo", libc::SIOCSIFFLAGS, libc::__c_anonymous_ifr_ifru { ifru_flags })
}

/// Adds an address to the loopback interface of this network namespace.
pub(super) fn add_loopback_address(address: Ipv4Addr) -> io::Result<()> {
    // An alias of the interface has one address.
    let alias = format!("lo:{:08x}", u32::from(address));
    for (request, address) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, Ipv4Addr::BROADCAST)] {
        let sa_family = libc::sa_family_t::try_from(libc::AF_INET).map_err(io::Error::other)?;
        // An address of IPv4 begins with the port.
        let mut bytes = [0; 14];
        bytes[2..6].copy_from_slice(&address.octets());
        let ifru_addr = libc::sockaddr { sa_family, sa_data: bytes.map(|byte| libc::c_char::from_ne_bytes([byte])) };
        set_interface(&alias, request, libc::__c_anonymous_ifr_ifru { ifru_addr })?;
    }
    Ok(())
}

/// Sets a property of an interface of this network namespace.
fn set_interface(name: &str, request: libc::Ioctl, value: libc::__c_anonymous_ifr_ifru) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: a zeroed `ifreq` is valid; name and value are set before the call and it outlives the call.
    unsafe {
        let mut structure: libc::ifreq = std::mem::zeroed();
        // The last byte of the name stays zero.
        for (to, byte) in structure.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = libc::c_char::from_ne_bytes([byte]);
        }
        structure.ifr_ifru = value;
        check(libc::ioctl(socket.as_raw_fd(), request, &raw const structure).into()).map(drop)
    }
}

/// Installs a seccomp filter in this thread. With a listener it returns the descriptor on which the kernel reports
/// suspended calls. If the kernel supports it, only a fatal signal interrupts a suspended call.
pub(super) fn install_filter(program: &[libc::sock_filter], listens: bool) -> io::Result<Option<OwnedFd>> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the program outlives the call, which reads it and changes nothing.
        check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, ptr::from_ref(&filter)) })
    };
    if !listens {
        return install(0).map(|_| None);
    }
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // Kernels before 5.19 do not support the second flag.
    let fd = install(listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).or_else(|_| install(listener))?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new and ours.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// A suspended system call.
pub(super) struct Notification {
    pub id: u64,
    /// The thread that makes the call, in the numbering of this process's namespace.
    pub thread: i32,
    pub number: i64,
    pub arguments: [u64; 6],
}

impl Notification {
    /// The first argument as a descriptor. The kernel uses its lower half.
    pub(super) fn descriptor(&self) -> i32 {
        let [a, b, c, d, ..] = self.arguments[0].to_le_bytes();
        i32::from_le_bytes([a, b, c, d])
    }

    /// The same as an open directory; `None` for the working directory.
    pub(super) fn directory(&self) -> Option<i32> {
        Some(self.descriptor()).filter(|fd| *fd != libc::AT_FDCWD)
    }
}

/// Receives a suspended call from a listener that is readable. `ENOENT` if its caller was killed.
pub(super) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // SAFETY: the kernel requires a zeroed structure, fills it, and it outlives the call.
    let got = unsafe {
        let mut got: libc::seccomp_notif = std::mem::zeroed();
        check(libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut got).into())?;
        got
    };
    let thread = i32::try_from(got.pid).map_err(io::Error::other)?;
    Ok(Notification { id: got.id, thread, number: got.data.nr.into(), arguments: got.data.args })
}

/// True if the caller is still suspended, so that its pid was not reused.
pub(super) fn notification_is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads the number, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Answers a suspended call: the kernel continues it, or it fails with an error number.
pub(super) fn answer_notification(listener: BorrowedFd<'_>, id: u64, error: Option<i32>) -> io::Result<()> {
    /// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
    const CONTINUE: u32 = 1;
    let flags = if error.is_none() { CONTINUE } else { 0 };
    let answer = libc::seccomp_notif_resp { id, val: 0, error: -error.unwrap_or(0), flags };
    // SAFETY: the kernel reads the structure, which outlives the call.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) }.into())
        .map(drop)
}

/// Reads the memory of another process. Unlike its file in `/proc`, which belongs to root for a process that is not
/// dumpable, this depends on the rights over its user namespace only.
pub(super) fn read_memory(thread: i32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let length = buffer.len();
    let remote = RemoteIoVec { base: usize::try_from(address).map_err(io::Error::other)?, len: length };
    let read = process_vm_readv(nix::unistd::Pid::from_raw(thread), &mut [IoSliceMut::new(buffer)], &[remote])?;
    if read == length { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
}

/// The Landlock ABI version of the kernel, or 0.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads no memory and only answers.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}
