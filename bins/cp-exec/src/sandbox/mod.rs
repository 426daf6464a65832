//! The sandbox: the helper that this program becomes when it starts itself again, and the messages between both.
//!
//! The helper is a single-threaded process that closes all inherited descriptors. For each run it creates an init in
//! new namespaces, which builds the mount view and starts the command with rlimits, empty capabilities, Landlock and
//! seccomp.

mod caller;
mod init;
mod interpreter;
mod landlock;
mod leader;
mod listener;
mod mounts;
mod namespace;
pub(crate) mod pieces;
pub(crate) mod plan;
pub(crate) mod report;
mod seccomp;
mod spawner;
mod sys;

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

pub(crate) use interpreter::{HEAD, first_line};
pub(crate) use listener::{ExecCall, ExecRequest, Listener, Process, Role, executed_for};
pub(crate) use mounts::SUPERVISOR;
pub(crate) use namespace::NetworkNamespace;
pub(crate) use report::{memory_file, receive, send};
pub(crate) use sys::landlock_abi;

/// The argument that starts this program as the helper. The number of an inherited descriptor may follow, which the
/// helper keeps open. Everything else is sent over the socket on standard input.
pub(crate) const VERB: &str = "--sandbox-helper";

/// Runs the helper if this process was started as one, and returns its exit status.
pub fn enter() -> Option<std::process::ExitCode> {
    let mut args = std::env::args_os().skip(1);
    args.next().filter(|verb| verb == VERB)?;
    Some(spawner::run(args.next().and_then(|lock| lock.to_str()?.parse().ok())))
}

/// Connects to the supervisor, if this process is inside a cp-exec sandbox with one.
pub(crate) fn connect() -> std::io::Result<OwnedFd> {
    if !is_nested() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(SUPERVISOR)?)?;
    Ok(socket)
}

/// True if this program is in the sandbox of another cp-exec whose supervisor decides and records.
pub fn is_inside() -> bool {
    static INSIDE: OnceLock<bool> = OnceLock::new();
    *INSIDE.get_or_init(|| connect().is_ok())
}

/// True if this process is in a sandbox already: system calls are filtered, or execution cannot grant rights.
pub(crate) fn is_nested() -> bool {
    use rustix::thread::{SecureComputingMode, no_new_privs, secure_computing_mode};
    no_new_privs().unwrap_or_default()
        || secure_computing_mode().is_ok_and(|mode| mode != SecureComputingMode::Disabled)
}

/// All processes: the pid of each, and its fields as in [`stat_fields`].
pub(crate) fn processes() -> impl Iterator<Item = (i32, Vec<String>)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, stat_fields(pid)?)))
}

/// The fields of `/proc/PID/stat` after the name of the program: state, parent, group, session and others.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any characters, including parentheses. The fields after the last one are well-formed.
    let fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    Some(fields.map(str::to_owned).collect())
}

/// True if a process in this state has ended and was not reaped yet.
pub(crate) fn has_ended(state: &str) -> bool {
    matches!(state, "Z" | "X")
}
