//! The init of the sandbox: builds the mount view, starts the command, reaps processes, and kills the remaining ones.
//!
//! In a process namespace, the end of the init ends all other processes. Without one the init is a subreaper: orphans
//! of the command become its children, so a walk over its descendants finds them all.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};

use super::namespace::Namespace;
use super::plan::{Layer, Network, Plan};
use super::report::{Cause, Enforcement, Failure, Order, Report, Status};
use super::sys::{self, Forked};
use super::wire::{self, die_with_parent, report_and_exit};
use super::{leader, mounts, terminal};

/// The time after which killing descendants gives up.
const WALK: Duration = Duration::from_millis(200);

/// Runs the init. Does not return: this process ends after the command and all of its processes.
pub(super) fn run(plan: &Plan, mut enforcement: Enforcement, socket: BorrowedFd<'_>) -> ! {
    let prepared = prepare(plan, &mut enforcement, socket).and_then(|(clients, namespace)| {
        if let Some(clients) = clients {
            let sent = wire::send_report(socket, &Report::Clients, Some(clients.as_fd()));
            sent.map_err(|e| Failure::setup("report", e))?;
        }
        Ok((namespace, sys::child_signals().map_err(|e| Failure::setup("signals", e))?))
    });
    let prepared = prepared.and_then(|(namespace, signals)| Ok((namespace, signals, terminal::control(plan, socket)?)));
    let (mut namespace, signals, terminal) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => report_and_exit(socket, failure),
    };
    let leader = match sys::fork() {
        Ok(Forked::Child) => leader::run(plan, enforcement, socket, terminal.as_ref()),
        Ok(Forked::Parent(leader)) => leader,
        Err(e) => report_and_exit(socket, Failure::setup("fork", e)),
    };
    let mut tree = Tree { owns_namespace: enforcement.is_private(), leader, terminal, frozen: None };
    // Standard streams belong to the command. If the init kept them open, they would never reach their end.
    drop(close_streams());
    tree.supervise(socket, signals.as_fd(), &mut namespace);
    sys::leave(0)
}

/// Applies the layers. Returns the socket of the supervisor, if the mount view contains it, and the network namespace,
/// if names are served in it.
fn prepare(
    plan: &Plan,
    enforcement: &mut Enforcement,
    socket: BorrowedFd<'_>,
) -> Result<(Option<OwnedFd>, Option<Namespace>), Failure> {
    die_with_parent().map_err(|e| Failure::setup("parent_death", e))?;
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if !enforcement.is_private() {
        if !matches!(plan.network_kind(), Network::None | Network::Host) {
            let message = "a network of its own requires namespaces, which this machine does not provide".to_owned();
            return Err(Failure { step: Layer::Network.name().to_owned(), message, cause: Cause::Required });
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|e| Failure::setup("subreaper", e))?;
        let kill = if plan.cgroup.is_none() { "subreaper" } else { "cgroup" };
        kill.clone_into(&mut enforcement.kill);
        return Ok((None, None));
    }
    "pid_namespace".clone_into(&mut enforcement.kill);
    let _ = rustix::system::sethostname(b"sandbox");
    let mut namespace = None;
    if plan.network_kind() != Network::Host {
        sys::loopback_up().map_err(|e| Failure::setup("loopback", e))?;
    }
    if plan.network_kind() == Network::Names {
        namespace = Some(Namespace::open(plan, socket).map_err(|e| Failure::setup("network", e))?);
    }
    Ok((Some(mounts::build(plan, enforcement)?), namespace))
}

/// Replaces the standard streams by `/dev/null`.
pub(super) fn close_streams() -> std::io::Result<()> {
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

struct Tree {
    owns_namespace: bool,
    leader: Pid,
    /// The controlling terminal of the command. It is closed at the end of the command, so that its other side reaches
    /// its end as soon as no process writes to it.
    terminal: Option<OwnedFd>,
    /// While all processes are stopped: those that were stopped before.
    frozen: Option<Vec<Pid>>,
}

impl Tree {
    /// Reaps processes and follows orders until no child is left, or the order to kill was carried out.
    fn supervise(&mut self, socket: BorrowedFd<'_>, signals: BorrowedFd<'_>, namespace: &mut Option<Namespace>) {
        loop {
            if !self.reap(socket) {
                return;
            }
            let mut fds =
                vec![PollFd::from_borrowed_fd(socket, PollFlags::IN), PollFd::from_borrowed_fd(signals, PollFlags::IN)];
            fds.extend(namespace.as_ref().map(|namespace| PollFd::from_borrowed_fd(namespace.as_fd(), PollFlags::IN)));
            let _ = rustix::event::poll(&mut fds, None);
            let is_requested = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
            if !fds[1].revents().is_empty() {
                let _ = rustix::io::read(signals, &mut [0_u8; 128]);
            }
            let is_ordered = !fds[0].revents().is_empty();
            if is_requested && namespace.as_mut().is_some_and(|namespace| !namespace.serve()) {
                *namespace = None;
            }
            if is_ordered {
                match wire::receive_order(socket) {
                    Ok(Some(Order::Terminate)) => {
                        self.signal(Signal::TERM);
                        // A stopped process receives a signal only then.
                        self.signal(Signal::CONT);
                    }
                    Ok(Some(Order::Continue)) => terminal::resume(self.terminal.as_ref(), self.leader),
                    Ok(Some(Order::Freeze)) => self.freeze(),
                    Ok(Some(Order::Cover(path))) => {
                        let covered = mounts::make_read_only(&path).map_err(|failure| failure.message);
                        drop(wire::send_report(socket, &Report::Covered(covered), None));
                    }
                    Ok(Some(Order::Thaw)) => self.thaw(),
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                    Ok(Some(Order::Kill) | None) | Err(_) => {
                        let killed = self.kill(socket);
                        drop(wire::send_report(socket, &Report::Killed(killed), None));
                        return;
                    }
                }
            }
        }
    }

    /// Reaps ended processes. False if no child is left.
    fn reap(&mut self, socket: BorrowedFd<'_>) -> bool {
        let stops = if self.terminal.is_some() { WaitOptions::UNTRACED } else { WaitOptions::empty() };
        loop {
            match rustix::process::wait(WaitOptions::NOHANG | stops) {
                Ok(Some((pid, status))) if status.stopped() => {
                    if pid == self.leader && self.frozen.is_none() {
                        drop(wire::send_report(socket, &Report::Stopped, None));
                    }
                }
                Ok(Some(ended)) => self.report(socket, ended),
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Sends a signal to all processes but this one.
    fn signal(&self, signal: Signal) {
        if self.owns_namespace {
            return sys::signal_all(signal.as_raw());
        }
        for pid in descendants() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Stops all processes. After this no process begins another system call.
    fn freeze(&mut self) {
        let stopped = super::processes().filter(|(_, fields)| fields[0] == "T");
        self.frozen = Some(stopped.filter_map(|(pid, _)| Pid::from_raw(pid)).collect());
        self.signal(Signal::STOP);
    }

    /// Continues the processes, children first: a shell that runs before its child takes the child for a stopped job.
    fn thaw(&mut self) {
        let stopped = self.frozen.take().unwrap_or_default();
        for pid in descendants().into_iter().rev().filter(|pid| !stopped.contains(pid)) {
            let _ = rustix::process::kill_process(pid, Signal::CONT);
        }
    }

    /// Kills all processes except this one, and returns their number. Orphans become children of this process, so
    /// reaping counts all.
    fn kill(&mut self, socket: BorrowedFd<'_>) -> u32 {
        let end = Instant::now() + WALK;
        let mut killed = 0;
        let options = if self.owns_namespace { WaitOptions::empty() } else { WaitOptions::NOHANG };
        loop {
            self.signal(Signal::KILL);
            loop {
                match rustix::process::wait(options) {
                    Ok(Some(ended)) => {
                        killed += was_killed(ended);
                        self.report(socket, ended);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Ok(None) | Err(_) => break,
                }
            }
            // A child may fork between a walk and its kill, so a walk is repeated until it finds nothing.
            if self.owns_namespace || descendants().is_empty() || Instant::now() > end {
                return killed;
            }
        }
    }

    /// Reports the exit status of the command.
    fn report(&mut self, socket: BorrowedFd<'_>, (pid, status): (Pid, WaitStatus)) {
        if pid == self.leader {
            self.terminal = None;
            let status = Status { code: status.exit_status(), signal: status.terminating_signal() };
            drop(wire::send_report(socket, &Report::Exited(status), None));
        }
    }
}

/// The live descendants of this process, nearest first.
fn descendants() -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<(Pid, bool)>> = HashMap::new();
    for (pid, fields) in super::processes() {
        let parent = fields.get(1).and_then(|parent| parent.parse().ok());
        if let (Some(pid), Some(parent)) = (Pid::from_raw(pid), parent.and_then(Pid::from_raw)) {
            children.entry(parent).or_default().push((pid, super::has_ended(&fields[0])));
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![rustix::process::getpid()]);
    while let Some(pid) = next.pop() {
        for (child, zombie) in children.remove(&pid).unwrap_or_default() {
            next.push(child);
            if !zombie {
                found.push(child);
            }
        }
    }
    found
}

/// 1 for a process that was still running when it was killed.
fn was_killed((_, status): (Pid, WaitStatus)) -> u32 {
    u32::from(status.terminating_signal() == Some(libc::SIGKILL))
}
