//! The helper's main process: small and single-threaded, it runs as long as this program, and starts an init in new
//! namespaces for each run, one after the other. So a run starts no other program than the command.
//!
//! A run has all namespaces or none: where the machine refuses one, Landlock and seccomp confine it, if the policy allows
//! that.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::plan::{Network, Plan};
use super::report::{self, At, Enforcement, Failure, Report};
use super::{init, leader, sys};

/// Runs the helper. Standard input is the socket on which runs are requested. The descriptor of a lock stays open until
/// every process of every run has ended, so that the lock shows if a run of a killed supervisor may still have effects.
pub(super) fn run(lock: Option<i32>) -> ExitCode {
    // Without a lock only the standard streams stay.
    sys::close_all_but(lock.unwrap_or(2));
    match prepare().and_then(|control| serve(&control)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn prepare() -> io::Result<OwnedFd> {
    // The parent may end at any time, which closes the socket. Signals of a terminal are for the parent only.
    rustix::process::setsid()?;
    sys::default_signals();
    leader::empty_bounding_set();
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    sys::close_streams()?;
    Ok(control)
}

/// Starts the requested runs until the supervisor ends. Each comes with its socket for reports and orders, the file in
/// memory with its plan, and the standard streams of its command.
fn serve(control: &OwnedFd) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let account = Account { uid, gid, has_user_namespaces: OnceCell::new() };
    loop {
        wait(&[PollFd::new(control, PollFlags::IN)]);
        let Some(((), fds)) = report::receive(control.as_fd())? else { return Ok(()) };
        let [socket, plan, streams @ ..] = <[OwnedFd; 5]>::try_from(fds).map_err(|_| ErrorKind::InvalidData)?;
        // The end of our copy of the socket, which is closed last, is the end of the run.
        if let Err(failure) = start(control, &socket, plan, streams, &account) {
            drop(report::send(socket.as_fd(), &Report::Failed(failure), &[]));
        }
    }
}

fn wait(fds: &[PollFd<'_>]) {
    let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds.to_vec(), None));
}

/// Starts a run, and returns after all of its processes have ended.
fn start(
    control: &OwnedFd,
    socket: &OwnedFd,
    plan: OwnedFd,
    streams: [OwnedFd; 3],
    account: &Account,
) -> Result<(), Failure> {
    let plan = io::read_to_string(fs::File::from(plan)).at("plan")?;
    let plan: Plan = serde_json::from_str(&plan).at("plan")?;
    let (first, namespaces) = first_process(account, plan.network_kind() == Network::Host).at("fork")?;
    let Some(pid) = first else {
        let Err(failure) = become_run(socket, plan, &streams, namespaces, account);
        report::report_and_exit(socket.as_fd(), failure)
    };
    drop(streams);
    // With its pidfd the supervisor can kill the init.
    if let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        drop(report::send(socket.as_fd(), &Report::Init, &[process.as_fd()]));
        wait(&[PollFd::new(&process, PollFlags::IN), PollFd::new(control, PollFlags::IN)]);
        // If the supervisor has ended, so does the run. The first process of a process namespace ends after all others in
        // it; one without a process namespace kills its descendants as soon as the supervisor is gone.
        if namespaces.is_ok() {
            let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
        }
    }
    let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()));
    Ok(())
}

/// The namespaces of a run, or the reason why it has none.
type Namespaces = Result<i32, String>;

/// Creates the first process of a run, in all namespaces or in none. In the network of this machine it gets no namespace
/// for it.
fn first_process(account: &Account, is_in_host_network: bool) -> io::Result<(Option<Pid>, Namespaces)> {
    let other = libc::CLONE_NEWUSER | if is_in_host_network { libc::CLONE_NEWNET } else { 0 };
    let all = NAMESPACES.iter().fold(0, |flags, (_, flag)| flags | flag) & !other;
    // Root does not need a user namespace, unless its capabilities were dropped.
    if account.uid == 0
        && let Ok(forked) = sys::fork_into(all)
    {
        return Ok((forked, Ok(all)));
    }
    let all = all | libc::CLONE_NEWUSER;
    // Each attempt costs a process, and a machine that refuses once will refuse again.
    if !*account.has_user_namespaces.get_or_init(|| account.can_use_user_namespace()) {
        return Ok((sys::fork_into(0)?, Err("a user namespace grants no rights".to_owned())));
    }
    match sys::fork_into(all) {
        Ok(forked) => Ok((forked, Ok(all))),
        Err(e) => Ok((sys::fork_into(0)?, Err(e.to_string()))),
    }
}

/// Becomes the first process of a run: takes its streams and its namespaces.
fn become_run(
    socket: &OwnedFd,
    mut plan: Plan,
    streams: &[OwnedFd; 3],
    namespaces: Namespaces,
    account: &Account,
) -> Result<Infallible, Failure> {
    sys::die_with_parent().at("parent_death")?;
    sys::become_streams(streams).at("streams")?;
    sys::close_all_but(socket.as_raw_fd());
    if let Some(group) = &plan.cgroup {
        fs::write(group.join("cgroup.procs"), "0").at("cgroup")?;
    }
    let mut enforcement =
        Enforcement { cgroup: plan.cgroup.is_some(), outer_sandbox: super::is_nested(), ..Enforcement::default() };
    match namespaces {
        Ok(flags) => {
            if flags & libc::CLONE_NEWUSER != 0 {
                account.map_into_user_namespace().at("user")?;
            }
            let got = NAMESPACES.iter().filter(|(_, flag)| flags & flag != 0);
            enforcement.namespaces = got.map(|(name, _)| (*name).to_owned()).collect();
        }
        Err(why) => {
            enforcement.missing.push(format!("namespaces: {why}"));
            // A list without a name needs no network of its own: the command gets local sockets only.
            plan.sockets &= plan.network != cp_egress::Network::default();
        }
    }
    enforcement.network = Some(plan.network_kind());
    init::run(&plan, enforcement, socket.as_fd())
}

/// The namespaces of a run. Root needs no user namespace.
const NAMESPACES: [(&str, i32); 6] = [
    ("user", libc::CLONE_NEWUSER),
    ("mount", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("network", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
];

/// The user and group of the helper, determined before any user namespace hides them.
struct Account {
    uid: u32,
    gid: u32,
    /// True if a user namespace grants rights.
    has_user_namespaces: OnceCell<bool>,
}

impl Account {
    /// Maps this user to itself in the current user namespace.
    fn map_into_user_namespace(&self) -> io::Result<()> {
        let Self { uid, gid, .. } = self;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
    }

    /// True if a user namespace is useful. A machine or an outer sandbox may allow its creation and then refuse
    /// mounts in it, and a process cannot leave it, so a child process tries.
    fn can_use_user_namespace(&self) -> bool {
        match sys::fork_into(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) {
            Ok(None) => {
                let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                let has_rights =
                    self.map_into_user_namespace().is_ok() && rustix::mount::mount_change("/", private).is_ok();
                sys::leave(i32::from(!has_rights))
            }
            Ok(Some(pid)) => {
                let ended = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()));
                matches!(ended, Ok(Some((_, status))) if status.exit_status() == Some(0))
            }
            Err(_) => false,
        }
    }
}
