//! The sandbox: what the program becomes when it starts itself again as a helper, and what both of them say.
//!
//! The helper is a fresh, single-threaded process that closes what it inherited. For each run it makes an init in namespaces of its
//! own, which builds the mount view and starts the command behind rlimits, empty capabilities, Landlock and seccomp.

mod init;
mod landlock;
mod leader;
mod listener;
mod mounts;
mod outer;
mod pieces;
pub(crate) mod plan;
mod process;
pub(crate) mod report;
mod seccomp;
mod spawner;
mod sys;
mod system;
mod view;
mod wire;

use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

pub(crate) use listener::{ExecCall, ExecRequest, Listener, Process, Waiting};
pub(crate) use mounts::SUPERVISOR;
pub(crate) use wire::{Received, memory_file, receive_report, send_order, send_plan, send_run};

/// The one argument that makes this program the helper. The rest comes over the socket on standard input.
pub(crate) const VERB: &str = "--sandbox-helper";

/// Becomes the helper if that is what this process was started for; returns its exit status then.
pub fn enter() -> Option<std::process::ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != VERB || args.next().is_some() {
        return None;
    }
    Some(spawner::run())
}

/// The kernel's Landlock interface, 0 where there is none.
pub(crate) fn landlock_abi() -> u32 {
    sys::landlock_abi()
}

/// Connects to the supervisor, if this process is inside a cp-exec sandbox that has one.
pub(crate) fn connect() -> std::io::Result<UnixStream> {
    if !is_nested() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    UnixStream::connect(SUPERVISOR)
}

/// Whether this program is a client: a supervisor outside of the sandbox decides and records.
pub fn is_client() -> bool {
    static CLIENT: OnceLock<bool> = OnceLock::new();
    *CLIENT.get_or_init(|| connect().is_ok())
}

/// Whether this process already is in a sandbox: something forbade it system calls or the rights of the files it executes.
pub(crate) fn is_nested() -> bool {
    use rustix::thread::{SecureComputingMode, no_new_privs, secure_computing_mode};
    no_new_privs().unwrap_or_default()
        || secure_computing_mode().is_ok_and(|mode| mode != SecureComputingMode::Disabled)
}
