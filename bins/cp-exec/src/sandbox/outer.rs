//! The first process of a run, if not all namespaces can be created at once. It stays outside of the process
//! namespace, creates namespaces one by one, starts the init and waits for it.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use super::init;
use super::plan::{Layer, Network, Plan};
use super::report::{Enforcement, Failure, Report};
use super::seccomp::Filters;
use super::sys::{self, Forked};
use super::wire::{self, report_and_exit};

/// The namespaces of a run, besides the user namespace.
pub(super) const NAMESPACES: [(Layer, i32); 5] = [
    (Layer::Mount, libc::CLONE_NEWNS),
    (Layer::Pid, libc::CLONE_NEWPID),
    (Layer::Network, libc::CLONE_NEWNET),
    (Layer::Ipc, libc::CLONE_NEWIPC),
    (Layer::Uts, libc::CLONE_NEWUTS),
];

/// The user and group of the helper, determined before any user namespace hides them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The account of this process.
    pub(super) fn own() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    pub(super) fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Maps this user to itself in the current user namespace.
    pub(super) fn map_into_user_namespace(self) -> std::io::Result<()> {
        let Self { uid, gid } = self;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
    }

    /// True if a user namespace is useful. A machine or an outer sandbox may allow its creation and then refuse
    /// mounts in it, and a process cannot leave it, so a child process tries.
    pub(super) fn can_use_user_namespace(self) -> bool {
        match sys::fork_into(libc::CLONE_NEWUSER) {
            Ok(Forked::Child) => {
                let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                let has_rights = self.map_into_user_namespace().is_ok()
                    && match sys::unshare(libc::CLONE_NEWNS) {
                        Ok(()) => rustix::mount::mount_change("/", private).is_ok(),
                        Err(_) => sys::unshare(libc::CLONE_NEWUTS).is_ok(),
                    };
                sys::leave(i32::from(!has_rights))
            }
            Ok(Forked::Parent(pid)) => loop {
                match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
                    Err(rustix::io::Errno::INTR) => {}
                    ended => {
                        return ended
                            .is_ok_and(|ended| ended.is_some_and(|(_, status)| status.exit_status() == Some(0)));
                    }
                }
            },
            Err(_) => false,
        }
    }
}

/// Creates namespaces, starts the init, and ends with it.
pub(super) fn run(plan: &Plan, account: Account, socket: BorrowedFd<'_>, filters: &Filters) -> ! {
    let enforcement = namespaces(plan, account);
    if !enforcement.has(Layer::Pid) {
        // Only a child would be in a new process namespace. Without one this process is the init itself.
        send_pidfd(rustix::process::getpid(), socket);
        init::run(plan, enforcement, socket, filters);
    }
    match sys::fork() {
        Err(e) => report_and_exit(socket, Failure::setup("fork", e)),
        Ok(Forked::Child) => init::run(plan, enforcement, socket, filters),
        Ok(Forked::Parent(pid)) => {
            send_pidfd(pid, socket);
            while matches!(rustix::process::waitpid(Some(pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
            sys::leave(0)
        }
    }
}

/// Sends a pidfd of the init, with which the supervisor can kill it.
pub(super) fn send_pidfd(init: Pid, socket: BorrowedFd<'_>) {
    if let Ok(fd) = rustix::process::pidfd_open(init, PidfdFlags::empty()) {
        drop(wire::send_report(socket, &Report::Init, Some(fd.as_fd())));
    }
}

/// The enforcement before the first layer.
pub(super) fn initial_enforcement(plan: &Plan, account: Account) -> Enforcement {
    Enforcement {
        profile: Some(plan.profile),
        network: Some(plan.network),
        uid: plan.run_as.map_or(account.uid, |(uid, _)| uid),
        cgroup: "none".to_owned(),
        outer_sandbox: super::is_nested(),
        ..Enforcement::default()
    }
}

/// Creates every namespace that this machine allows, and records them.
fn namespaces(plan: &Plan, account: Account) -> Enforcement {
    let mut got = initial_enforcement(plan, account);
    // A user namespace grants the right to create the others. Root does not need one, unless its capabilities were
    // dropped.
    if (!account.is_root() || sys::unshare(libc::CLONE_NEWUTS).is_err())
        && account.can_use_user_namespace()
        && sys::unshare(libc::CLONE_NEWUSER).and_then(|()| account.map_into_user_namespace()).is_ok()
    {
        got.namespaces.push(Layer::User.name().to_owned());
    }
    for (layer, flag) in
        NAMESPACES.iter().filter(|(layer, _)| *layer != Layer::Network || plan.network != Network::Host)
    {
        match sys::unshare(*flag) {
            Ok(()) => got.namespaces.push(layer.name().to_owned()),
            Err(e) => got.missing.push(format!("{}: {e}", layer.name())),
        }
    }
    got
}
