//! The init of the sandbox: builds the mount view, starts the command, reaps processes, and kills the remaining ones.
//!
//! In a process namespace, the end of the init ends all other processes. Without one the init is a subreaper: orphans
//! of the command become its children, so a walk over its descendants finds them all.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};

use super::namespace::Namespace;
use super::plan::{Layer, Network, Plan};
use super::report::{self, At, Enforcement, Failure, Order, Report, Status};
use super::{leader, mounts, sys};

/// The time after which killing descendants gives up.
const WALK: Duration = Duration::from_millis(200);

/// Runs the init. Returns only if the command cannot be started: this process ends after it and all of its processes.
pub(super) fn run(plan: &Plan, mut enforcement: Enforcement, socket: BorrowedFd<'_>) -> Result<Infallible, Failure> {
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let (network, is_private) = (plan.network_kind(), enforcement.is_private());
    let mut namespace = None;
    if is_private {
        let _ = rustix::system::sethostname(b"sandbox");
        if network != Network::Host {
            sys::loopback_up().at("loopback")?;
        }
        if network == Network::Names {
            namespace = Some(Namespace::open(socket).at("network")?);
        }
        let clients = mounts::build(plan, &mut enforcement).map_err(Failure::of_namespaces)?;
        report::send(socket, &Report::Clients, &[clients.as_fd()]).at("report")?;
    } else {
        if !matches!(network, Network::None | Network::Host) {
            return Err(Failure::missing(Layer::Namespaces));
        }
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).at("subreaper")?;
    }
    let signals = sys::child_signals().at("signals")?;
    let terminal = leader::control_terminal(plan, socket)?;
    let Some(leader) = sys::fork_into(0).at("fork")? else { leader::run(plan, enforcement, socket, terminal.as_ref()) };
    // Standard streams belong to the command. If the init kept them open, they would never reach their end.
    let _ = sys::close_streams();
    Tree { owns_namespace: is_private, leader, terminal, socket, namespace, frozen: None, killed: 0 }
        .supervise(signals.as_fd());
    sys::leave(0)
}

struct Tree<'s> {
    owns_namespace: bool,
    leader: Pid,
    /// The controlling terminal of the command. It is closed at the end of the command, so that its other side reaches
    /// its end as soon as no process writes to it.
    terminal: Option<OwnedFd>,
    socket: BorrowedFd<'s>,
    namespace: Option<Namespace>,
    /// While all processes are stopped: those that were stopped before.
    frozen: Option<Vec<Pid>>,
    /// The reaped processes that SIGKILL had ended.
    killed: u32,
}

impl Tree<'_> {
    /// Reaps processes and follows orders until no child is left, or the order to kill was carried out.
    fn supervise(&mut self, signals: BorrowedFd<'_>) {
        let stops = if self.terminal.is_some() { WaitOptions::UNTRACED } else { WaitOptions::empty() };
        while self.reap(WaitOptions::NOHANG | stops) {
            let requests = self.namespace.as_ref().map(|Namespace(requests)| requests.as_fd());
            let sources = [self.socket, signals].into_iter().chain(requests);
            let mut fds: Vec<_> = sources.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let _ = rustix::event::poll(&mut fds, None);
            // None of these blocks.
            let _ = rustix::io::read(signals, &mut [0_u8; 128]);
            self.namespace = self.namespace.take().filter(Namespace::serve);
            if !self.obey(report::receive(self.socket)) {
                return;
            }
        }
    }

    /// Follows an order. False after the order to kill, which the end of the supervisor means too.
    fn obey(&mut self, received: std::io::Result<Option<(Order, Vec<OwnedFd>)>>) -> bool {
        let order = match received {
            Ok(Some((order, _))) => order,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return true,
            Ok(None) | Err(_) => Order::Kill,
        };
        match order {
            Order::Terminate | Order::Interrupt => {
                self.signal(if order == Order::Interrupt { Signal::INT } else { Signal::TERM });
                // A stopped process receives a signal only then.
                self.signal(Signal::CONT);
            }
            // A command that ended in the meantime is reported as usual.
            Order::Continue => drop(rustix::process::kill_process_group(self.leader, Signal::CONT)),
            Order::Freeze => self.freeze(),
            Order::Cover(path) => {
                self.report(&Report::Covered(mounts::make_read_only(&path).map_err(Failure::into_message)));
            }
            Order::Thaw => self.thaw(),
            Order::Kill => {
                self.kill();
                self.report(&Report::Killed(self.killed));
                return false;
            }
        }
        true
    }

    fn report(&self, report: &Report) {
        // If it cannot be sent, the supervisor has ended.
        drop(report::send(self.socket, report, &[]));
    }

    /// Reaps ended processes. False if no child is left.
    fn reap(&mut self, options: WaitOptions) -> bool {
        loop {
            match rustix::process::wait(options) {
                Ok(Some((pid, status))) if status.stopped() => {
                    if pid == self.leader && self.frozen.is_none() {
                        self.report(&Report::Stopped);
                    }
                }
                Ok(Some((pid, status))) => {
                    self.killed += u32::from(status.terminating_signal() == Some(libc::SIGKILL));
                    if pid == self.leader {
                        self.terminal = None;
                        let (code, signal) = (status.exit_status(), status.terminating_signal());
                        self.report(&Report::Exited(Status { code, signal }));
                    }
                }
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

    /// Kills all processes except this one, and counts them. Orphans become children of this process, so reaping counts
    /// all.
    fn kill(&mut self) {
        self.killed = 0;
        let end = Instant::now() + WALK;
        let options = if self.owns_namespace { WaitOptions::empty() } else { WaitOptions::NOHANG };
        loop {
            self.signal(Signal::KILL);
            self.reap(options);
            // A child may fork between a walk and its kill, so a walk is repeated until it finds nothing.
            if self.owns_namespace || descendants().is_empty() || Instant::now() > end {
                return;
            }
        }
    }
}

/// The live descendants of this process, nearest first.
fn descendants() -> Vec<Pid> {
    let parent = |fields: &[String]| fields.get(1).and_then(|parent| parent.parse::<i32>().ok());
    let all: Vec<_> = super::processes()
        .filter_map(|(pid, fields)| Some((Pid::from_raw(pid)?, Pid::from_raw(parent(&fields)?)?, fields)))
        .collect();
    let (mut found, mut next) = (Vec::new(), vec![rustix::process::getpid()]);
    while let Some(above) = next.pop() {
        for (pid, _, fields) in all.iter().filter(|(_, parent, _)| *parent == above) {
            next.push(*pid);
            found.extend((!super::has_ended(&fields[0])).then_some(*pid));
        }
    }
    found
}
