//! The helper's main process: small and single-threaded, it runs as long as this program, and starts an init in new
//! namespaces for each run. So a run starts no other program than the command.
//!
//! A run has all namespaces or none: where the machine refuses one, Landlock and seccomp confine it, if the policy allows
//! that.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::plan::{Layer, Network, Plan};
use super::report::{Enforcement, Failure, Report};
use super::sys::{self, Forked};
use super::wire::{self, die_with_parent, report_and_exit};
use super::{init, leader};

/// Runs the helper. Standard input is the socket on which runs are requested. The descriptor of a lock stays open until
/// every process of every run has ended, so that the lock shows if a run of a killed supervisor may still have effects.
pub(super) fn run(lock: Option<i32>) -> ExitCode {
    // Without a lock only the standard streams stay.
    sys::close_all_but(lock.unwrap_or(2));
    match prepare() {
        Ok((control, signals)) => {
            let mut spawner = Spawner { account: Account::own(), users: None, refused: Vec::new(), runs: Vec::new() };
            spawner.serve(&control, &signals);
            spawner.kill();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn prepare() -> std::io::Result<(OwnedFd, OwnedFd)> {
    // The parent may end at any time, which closes the socket. Signals of a terminal are for the parent only.
    rustix::process::setsid()?;
    sys::default_signals();
    leader::empty_bounding_set();
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    init::close_streams()?;
    Ok((control, sys::child_signals()?))
}

struct Spawner {
    account: Account,
    /// True if a user namespace grants rights; `None` if it was not tried yet.
    users: Option<bool>,
    /// Sets of namespaces that the machine refuses, each with the reason.
    refused: Vec<(i32, String)>,
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
            let mut fds = [PollFd::new(control, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                let _ = rustix::io::read(signals, &mut [0_u8; 128]);
            }
            if !fds[0].revents().is_empty() {
                match wire::receive_run(control.as_fd()) {
                    Ok(Some(request)) => self.start(request),
                    Ok(None) => return,
                    Err(_) => {}
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
            while matches!(rustix::process::waitpid(Some(run.pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR))
            {
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.runs.retain(|run| run.pid != pid);
        }
    }

    /// Creates the first process of a run, in all namespaces or in none.
    fn first_process(&mut self, network: Network) -> std::io::Result<(Forked, Namespaces)> {
        let wanted = NAMESPACES.iter().filter(|(layer, _)| *layer != Layer::Network || network != Network::Host);
        let all = wanted.fold(0, |flags, (_, flag)| flags | flag);
        // Root does not need a user namespace, unless its capabilities were dropped.
        let account = self.account;
        let root = account.is_root().then_some(all);
        let mut reason = String::new();
        for flags in root.into_iter().chain([all | libc::CLONE_NEWUSER]) {
            // If the machine refuses once, it will refuse again; each attempt costs a process.
            if let Some((_, known)) = self.refused.iter().find(|(refused, _)| *refused == flags) {
                reason.clone_from(known);
                continue;
            }
            let is_given =
                flags & libc::CLONE_NEWUSER == 0 || *self.users.get_or_insert_with(|| account.can_use_user_namespace());
            reason = match is_given.then(|| sys::fork_into(flags)) {
                Some(Ok(forked)) => return Ok((forked, Ok(flags))),
                Some(Err(e)) => e.to_string(),
                None => "a user namespace grants no rights".to_owned(),
            };
            self.refused.push((flags, reason.clone()));
        }
        Ok((sys::fork()?, Err(reason)))
    }

    fn start(&mut self, request: wire::RunRequest) {
        match self.first_process(request.network) {
            Err(e) => {
                drop(wire::send_report(request.socket.as_fd(), &Report::Failed(Failure::setup("fork", e)), None));
            }
            Ok((Forked::Child, namespaces)) => become_run(&request, namespaces, self.account),
            Ok((Forked::Parent(pid), namespaces)) => {
                send_pidfd(pid, request.socket.as_fd());
                self.runs.push(StartedRun { pid, ends_all: namespaces.is_ok(), _socket: request.socket });
            }
        }
    }
}

/// Runs the first process of a run. Does not return.
fn become_run(request: &wire::RunRequest, namespaces: Namespaces, account: Account) -> ! {
    let socket = request.socket.as_fd();
    let ready = ready(request).and_then(|mut plan| {
        let enforcement = begin(&mut plan, account, namespaces)?;
        Ok((plan, enforcement))
    });
    match ready {
        Err(failure) => report_and_exit(socket, failure),
        Ok((plan, enforcement)) => init::run(&plan, enforcement, socket),
    }
}

/// Receives the plan and the streams of this run.
fn ready(request: &wire::RunRequest) -> Result<Plan, Failure> {
    die_with_parent().map_err(|e| Failure::setup("parent_death", e))?;
    let [stdin, stdout, stderr] = &request.streams;
    let taken = rustix::stdio::dup2_stdin(stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(stderr));
    taken.map_err(|e| Failure::setup("streams", e))?;
    let plan = request.read_plan().map_err(|e| Failure::setup("plan", e))?;
    sys::close_all_but(request.socket.as_raw_fd());
    if let Some(group) = &plan.cgroup {
        fs::write(group.join("cgroup.procs"), "0").map_err(|e| Failure::setup("cgroup", e))?;
    }
    Ok(plan)
}

/// Takes possession of the namespaces. Returns the enforcement before the first layer.
fn begin(plan: &mut Plan, account: Account, namespaces: Namespaces) -> Result<Enforcement, Failure> {
    let (mut names, mut missing) = (Vec::new(), Vec::new());
    match namespaces {
        Ok(flags) => {
            if flags & libc::CLONE_NEWUSER != 0 {
                account.map_into_user_namespace().map_err(|e| Failure::setup("user", e))?;
                names.push(Layer::User.name().to_owned());
            }
            let got = NAMESPACES.iter().filter(|(_, flag)| flags & flag != 0);
            names.extend(got.map(|(layer, _)| layer.name().to_owned()));
        }
        Err(why) => {
            missing.push(format!("namespaces: {why}"));
            // A list without a name needs no network of its own: the command gets local sockets only.
            plan.sockets &= plan.network != cp_egress::Network::default();
        }
    }
    Ok(Enforcement {
        profile: Some(plan.profile),
        network: Some(plan.network_kind()),
        uid: plan.run_as.map_or(account.uid, |(uid, _)| uid),
        cgroup: "none".to_owned(),
        outer_sandbox: super::is_nested(),
        namespaces: names,
        missing,
        ..Enforcement::default()
    })
}

/// The namespaces of a run, besides the user namespace.
const NAMESPACES: [(Layer, i32); 5] = [
    (Layer::Mount, libc::CLONE_NEWNS),
    (Layer::Pid, libc::CLONE_NEWPID),
    (Layer::Network, libc::CLONE_NEWNET),
    (Layer::Ipc, libc::CLONE_NEWIPC),
    (Layer::Uts, libc::CLONE_NEWUTS),
];

/// The user and group of the helper, determined before any user namespace hides them.
#[derive(Clone, Copy, Debug)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The account of this process.
    fn own() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    fn is_root(self) -> bool {
        self.uid == 0
    }

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
            Ok(Forked::Child) => {
                let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                let has_rights =
                    self.map_into_user_namespace().is_ok() && rustix::mount::mount_change("/", private).is_ok();
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

/// Sends a pidfd of the init, with which the supervisor can kill it.
fn send_pidfd(init: Pid, socket: BorrowedFd<'_>) {
    if let Ok(fd) = rustix::process::pidfd_open(init, PidfdFlags::empty()) {
        let pid = init.as_raw_nonzero().get().unsigned_abs();
        drop(wire::send_report(socket, &Report::Init(pid), Some(fd.as_fd())));
    }
}
