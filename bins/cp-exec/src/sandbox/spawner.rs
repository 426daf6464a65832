//! The helper's main process: small and single-threaded, it runs as long as this program, and starts an init in new
//! namespaces for each run. So a run starts no other program than the command.
//!
//! A run has all namespaces or none: where the machine refuses one, Landlock and seccomp confine it, if the policy allows
//! that.

use std::convert::Infallible;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::plan::Plan;
use super::report::{self, At, Enforcement, Failure, Report};
use super::{init, leader, sys};

/// Runs the helper. Standard input is the socket on which runs are requested. The descriptor of a lock stays open until
/// every process of every run has ended, so that the lock shows if a run of a killed supervisor may still have effects.
pub(super) fn run(lock: Option<i32>) -> ExitCode {
    // Without a lock only the standard streams stay.
    sys::close_all_but(lock.unwrap_or(2));
    let Ok((control, signals)) = prepare() else { return ExitCode::FAILURE };
    let account = Account { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let mut spawner = Spawner { account, users: None, runs: Vec::new() };
    spawner.serve(&control, &signals);
    spawner.kill();
    ExitCode::SUCCESS
}

fn prepare() -> std::io::Result<(OwnedFd, OwnedFd)> {
    // The parent may end at any time, which closes the socket. Signals of a terminal are for the parent only.
    rustix::process::setsid()?;
    sys::default_signals();
    leader::empty_bounding_set();
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    sys::close_streams()?;
    Ok((control, sys::child_signals()?))
}

struct Spawner {
    account: Account,
    /// True if a user namespace grants rights; `None` if it was not tried yet.
    users: Option<bool>,
    /// The current runs.
    runs: Vec<StartedRun>,
}

/// The namespaces of a run, or the reason why it has none.
type Namespaces = Result<i32, String>;

/// The first process of a run.
struct StartedRun {
    pid: Pid,
    /// True if its end is that of all other processes of the run.
    ends_all: bool,
    /// Our copy of its socket. The copy is closed last, so its end is the end of the run.
    _socket: OwnedFd,
}

impl Spawner {
    fn serve(&mut self, control: &OwnedFd, signals: &OwnedFd) {
        loop {
            self.reap();
            if init::wait([control.as_fd()].into_iter(), signals.as_fd())[0] {
                match report::receive(control.as_fd()).map(|got| got.map(|(host, fds)| (host, fds.try_into()))) {
                    Ok(Some((is_in_host_network, Ok(fds)))) => self.start(is_in_host_network, fds),
                    Ok(None) => return,
                    Ok(Some((_, Err(_)))) | Err(_) => {}
                }
            }
        }
    }

    /// Kills the runs, and waits until all of their processes have ended. The first process of a process namespace ends
    /// after all others in it; one without a process namespace kills its descendants as soon as the supervisor is gone.
    fn kill(self) {
        for run in self.runs.iter().filter(|run| run.ends_all) {
            let _ = rustix::process::kill_process(run.pid, Signal::KILL);
        }
        for run in &self.runs {
            let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(run.pid), WaitOptions::empty()));
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.runs.retain(|run| run.pid != pid);
        }
    }

    /// Creates the first process of a run, in all namespaces or in none.
    fn first_process(&mut self, is_in_host_network: bool) -> std::io::Result<(Option<Pid>, Namespaces)> {
        let account = self.account;
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
        let why = if *self.users.get_or_insert_with(|| account.can_use_user_namespace()) {
            match sys::fork_into(all) {
                Ok(forked) => return Ok((forked, Ok(all))),
                Err(e) => e.to_string(),
            }
        } else {
            "a user namespace grants no rights".to_owned()
        };
        Ok((sys::fork_into(0)?, Err(why)))
    }

    /// Starts a run with its socket for reports and orders, the file in memory with its plan, and the standard streams
    /// of its command. In the network of this machine it gets no namespace for it.
    fn start(&mut self, is_in_host_network: bool, [socket, plan, streams @ ..]: [OwnedFd; 5]) {
        match self.first_process(is_in_host_network).at("fork") {
            Err(failure) => drop(report::send(socket.as_fd(), &Report::Failed(failure), &[])),
            Ok((None, namespaces)) => {
                let Err(failure) = become_run(&socket, plan, &streams, namespaces, self.account);
                report::report_and_exit(socket.as_fd(), failure)
            }
            Ok((Some(pid), namespaces)) => {
                // With its pidfd the supervisor can kill the init.
                if let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                    let init = Report::Init(pid.as_raw_nonzero().get().unsigned_abs());
                    drop(report::send(socket.as_fd(), &init, &[fd.as_fd()]));
                }
                self.runs.push(StartedRun { pid, ends_all: namespaces.is_ok(), _socket: socket });
            }
        }
    }
}

/// Becomes the first process of a run: takes its streams, its plan and its namespaces.
fn become_run(
    socket: &OwnedFd,
    plan: OwnedFd,
    streams: &[OwnedFd; 3],
    namespaces: Namespaces,
    account: Account,
) -> Result<Infallible, Failure> {
    sys::die_with_parent().at("parent_death")?;
    sys::become_streams(streams).at("streams")?;
    let text = std::io::read_to_string(fs::File::from(plan)).at("plan")?;
    let mut plan: Plan = serde_json::from_str(&text).at("plan")?;
    sys::close_all_but(socket.as_raw_fd());
    if let Some(group) = &plan.cgroup {
        fs::write(group.join("cgroup.procs"), "0").at("cgroup")?;
    }
    let (cgroup, kill) = match (&plan.cgroup, &namespaces) {
        (Some(_), Ok(_)) => ("cgroup_v2", "pid_namespace"),
        (Some(_), Err(_)) => ("cgroup_v2", "cgroup"),
        (None, Ok(_)) => ("rlimits+pid_namespace", "pid_namespace"),
        (None, Err(_)) => ("rlimits", "subreaper"),
    };
    let mut enforcement = Enforcement {
        profile: Some(plan.profile),
        uid: account.uid,
        cgroup: cgroup.to_owned(),
        kill: kill.to_owned(),
        outer_sandbox: super::is_nested(),
        ..Enforcement::default()
    };
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
#[derive(Clone, Copy, Debug)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// Maps this user to itself in the current user namespace.
    fn map_into_user_namespace(self) -> std::io::Result<()> {
        let Self { uid, gid } = self;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
    }

    /// True if a user namespace is useful. A machine or an outer sandbox may allow its creation and then refuse
    /// mounts in it, and a process cannot leave it, so a child process tries.
    fn can_use_user_namespace(self) -> bool {
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
