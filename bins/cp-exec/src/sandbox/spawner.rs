//! The helper's main process: small and single-threaded, it runs as long as this program, and starts an init in new
//! namespaces for each run. So a run starts no other program than the command.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions};

use super::outer::{self, Account, NAMESPACES};
use super::plan::{Layer, Network, Plan};
use super::report::{Enforcement, Failure, Report};
use super::seccomp::Filters;
use super::sys::{self, Forked};
use super::wire::{self, die_with_parent, report_and_exit};
use super::{init, leader};

/// Runs the helper. Standard input is the socket on which runs are requested.
pub(super) fn run() -> ExitCode {
    sys::close_from(3);
    match prepare() {
        Ok((control, signals)) => {
            let mut spawner = Spawner {
                account: Account::own(),
                filters: Filters::compile(),
                users: None,
                refused: Vec::new(),
                runs: Vec::new(),
            };
            spawner.serve(&control, &signals);
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn prepare() -> std::io::Result<(OwnedFd, OwnedFd)> {
    // The parent may end at any time, and no process may outlive it. Signals of a terminal are for the parent only.
    die_with_parent()?;
    rustix::process::setsid()?;
    sys::default_signals();
    leader::empty_bounding_set();
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok((control, sys::child_signals()?))
}

struct Spawner {
    account: Account,
    filters: Filters,
    /// True if a user namespace grants rights; `None` if it was not tried yet.
    users: Option<bool>,
    /// Combinations of namespaces that could not be created at once.
    refused: Vec<i32>,
    /// The first process of each current run, with our copy of its socket. The copy is closed last, so its end is the
    /// end of the run.
    runs: Vec<(Pid, OwnedFd)>,
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

    fn reap(&mut self) {
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.runs.retain(|(known, _)| *known != pid);
        }
    }

    /// Creates the first process of a run, with all namespaces at once if possible. Also returns the flags that were
    /// used.
    fn first_process(&mut self, network: Network) -> std::io::Result<(Forked, Option<i32>)> {
        let wanted = NAMESPACES.iter().filter(|(layer, _)| *layer != Layer::Network || network != Network::Host);
        let all = wanted.fold(0, |flags, (_, flag)| flags | flag);
        // Root does not need a user namespace, unless its capabilities were dropped.
        let account = self.account;
        let root = account.is_root().then_some(all);
        for flags in root.into_iter().chain([all | libc::CLONE_NEWUSER]) {
            if self.refused.contains(&flags) {
                continue;
            }
            let is_given =
                flags & libc::CLONE_NEWUSER == 0 || *self.users.get_or_insert_with(|| account.can_use_user_namespace());
            match is_given.then(|| sys::fork_into(flags)) {
                Some(Ok(forked)) => return Ok((forked, Some(flags))),
                // If the machine refuses once, it will refuse again; each attempt costs a process.
                None | Some(Err(_)) => self.refused.push(flags),
            }
        }
        Ok((sys::fork()?, None))
    }

    fn start(&mut self, request: wire::RunRequest) {
        let born = match self.first_process(request.network) {
            Ok(born) => born,
            Err(e) => {
                drop(wire::send_report(request.socket.as_fd(), &Report::Failed(Failure::setup("fork", e)), None));
                return;
            }
        };
        match born {
            (Forked::Child, namespaces) => become_run(&request, namespaces, self.account, &self.filters),
            (Forked::Parent(pid), namespaces) => {
                if namespaces.is_some() {
                    outer::send_pidfd(pid, request.socket.as_fd());
                }
                self.runs.push((pid, request.socket));
            }
        }
    }
}

/// Runs the first process of a run. Does not return.
fn become_run(request: &wire::RunRequest, namespaces: Option<i32>, account: Account, filters: &Filters) -> ! {
    let socket = request.socket.as_fd();
    match ready(request) {
        Err(failure) => report_and_exit(socket, failure),
        Ok(plan) => match namespaces {
            None => outer::run(&plan, account, socket, filters),
            Some(flags) => match in_namespaces(&plan, account, flags) {
                Err(failure) => report_and_exit(socket, failure),
                Ok(enforcement) => init::run(&plan, enforcement, socket, filters),
            },
        },
    }
}

/// Receives the plan and the streams of this run.
fn ready(request: &wire::RunRequest) -> Result<Plan, Failure> {
    die_with_parent().map_err(|e| Failure::setup("parent_death", e))?;
    let streams = |e| Failure::setup("streams", e);
    rustix::stdio::dup2_stdout(&request.stdout).map_err(streams)?;
    rustix::stdio::dup2_stderr(&request.stderr).map_err(streams)?;
    sys::close_all_but(request.socket.as_raw_fd());
    let (plan, stdin) = wire::receive_plan(request.socket.as_fd()).map_err(|e| Failure::setup("plan", e))?;
    rustix::stdio::dup2_stdin(&stdin).map_err(streams)?;
    for group in &plan.cgroups {
        fs::write(group.join("cgroup.procs"), "0").map_err(|e| Failure::setup("cgroup", e))?;
    }
    Ok(plan)
}

fn in_namespaces(plan: &Plan, account: Account, flags: i32) -> Result<Enforcement, Failure> {
    let mut enforcement = outer::initial_enforcement(plan, account);
    if flags & libc::CLONE_NEWUSER != 0 {
        account.map_into_user_namespace().map_err(|e| Failure::setup("user", e))?;
        enforcement.namespaces.push(Layer::User.name().to_owned());
    }
    let got = NAMESPACES.iter().filter(|(_, flag)| flags & flag != 0);
    enforcement.namespaces.extend(got.map(|(layer, _)| layer.name().to_owned()));
    Ok(enforcement)
}
