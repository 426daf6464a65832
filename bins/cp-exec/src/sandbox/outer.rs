//! The helper's first process: outside the process namespace, it takes the namespaces, starts the init and waits.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::process::{PidfdFlags, Signal, WaitOptions};

use super::plan::{Cause, Enforcement, Failure, Layer, Network, Plan, Report};
use super::sys::{self, Forked};
use super::{init, wire};

/// Runs the helper: standard input is the socket, the others are the command's own.
pub(super) fn run() -> ExitCode {
    sys::close_from(3);
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) else { return ExitCode::FAILURE };
    let Ok((plan, stdin)) = wire::receive_plan(socket.as_fd()) else { return ExitCode::FAILURE };
    match start(&plan, &socket, stdin) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            wire::send_report(socket.as_fd(), &Report::Failed(failure), None);
            ExitCode::FAILURE
        }
    }
}

fn start(plan: &Plan, socket: &OwnedFd, stdin: OwnedFd) -> Result<(), Failure> {
    // Whoever started us may end in any way; nothing of ours may outlive that.
    die_with_parent().map_err(|e| setup("parent_death", e))?;
    rustix::stdio::dup2_stdin(&stdin).map_err(|e| setup("stdin", e))?;
    drop(stdin);
    rustix::process::setsid().map_err(|e| setup("setsid", e))?;
    for group in &plan.cgroups {
        fs::write(group.join("cgroup.procs"), "0").map_err(|e| setup("cgroup", e))?;
    }
    let enforcement = namespaces(plan);
    match sys::fork().map_err(|e| setup("fork", e))? {
        Forked::Child => init::run(plan, enforcement, socket.as_fd()),
        Forked::Parent(pid) => {
            if let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                wire::send_report(socket.as_fd(), &Report::Init, Some(fd.as_fd()));
            }
            while matches!(rustix::process::waitpid(Some(pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
            Ok(())
        }
    }
}

/// Has the kernel kill this process when its parent ends.
pub(super) fn die_with_parent() -> Result<(), rustix::io::Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// A failure to build the sandbox.
pub(super) fn setup(step: &str, error: impl Into<std::io::Error>) -> Failure {
    let error = error.into();
    Failure { step: step.to_owned(), message: format!("{step}: {error}"), cause: Cause::Setup }
}

/// Takes every namespace that can be had, and says which.
fn namespaces(plan: &Plan) -> Enforcement {
    let uid = rustix::process::geteuid();
    let mut got = Enforcement {
        profile: Some(plan.profile),
        network: Some(plan.network),
        uid: plan.run_as.map_or(uid.as_raw(), |(uid, _)| uid),
        cgroup: "none".to_owned(),
        ..Enforcement::default()
    };
    let mut wanted = vec![
        (Layer::Mount, libc::CLONE_NEWNS),
        (Layer::Pid, libc::CLONE_NEWPID),
        (Layer::Network, libc::CLONE_NEWNET),
        (Layer::Ipc, libc::CLONE_NEWIPC),
        (Layer::Uts, libc::CLONE_NEWUTS),
    ];
    wanted.retain(|(layer, _)| *layer != Layer::Network || plan.network != Network::Host);
    // Without a right to the others, a user namespace gives it. Root needs none, unless its rights were taken.
    if (!uid.is_root() || sys::unshare(libc::CLONE_NEWUTS).is_err()) && own_user().is_ok() {
        got.namespaces.push(Layer::User.name().to_owned());
    }
    for (layer, flag) in wanted {
        match sys::unshare(flag) {
            Ok(()) => got.namespaces.push(layer.name().to_owned()),
            Err(e) => got.missing.push(format!("{}: {e}", layer.name())),
        }
    }
    got
}

/// Enters a user namespace in which this user is itself.
fn own_user() -> std::io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Whether a layer is among those obtained.
pub(super) fn has(enforcement: &Enforcement, layer: Layer) -> bool {
    enforcement.namespaces.iter().any(|name| name == layer.name())
}

/// Reports and leaves, from a child that cannot return.
pub(super) fn give_up(socket: BorrowedFd<'_>, failure: Failure) -> ! {
    wire::send_report(socket, &Report::Failed(failure), None);
    sys::leave(125)
}
