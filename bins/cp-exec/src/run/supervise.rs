//! Supervises one run: reads its output and the helper's reports, enforces the deadline, and kills all remaining
//! processes.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result, signals};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::Prepared;
use super::clients::Clients;
use super::connections::RunConnections;
use super::helper::{Group, Helper};
use super::result::{EarlyEnd, Outcome, guess_cause};
use super::steps::Steps;
use super::streams::{Output, Watch};
use super::terminal::{self, Relay};
use crate::changes::Changes;
use crate::git_dir;
use crate::guard::settle::OpenRun;
use crate::sandbox::plan::Layer;
use crate::sandbox::report::{Enforcement, Failure, Order, Report, Status};
use crate::sandbox::{self, Listener};

/// The longest time before the deadline at which the command gets SIGTERM.
const GRACE: Duration = Duration::from_millis(500);
/// The time after the end of the command during which other processes may keep its output open.
const DRAIN: Duration = Duration::from_millis(200);
/// The time in which the init must count and kill the processes that are left. It is killed itself after that, and their
/// number is not known then.
const KILLING: Duration = Duration::from_secs(2);
/// The longest time in which the init must cover a path.
const COVERING: Duration = Duration::from_secs(2);
/// The interval at which a wait checks for signals, because a signal wakes only one thread.
const SIGNAL_POLL: Duration = Duration::from_millis(50);

/// A run in progress.
struct Supervised<'a, 'r> {
    prepared: &'r Prepared,
    socket: OwnedFd,
    output: Output<'a>,
    started: Instant,
    steps: Steps,
    /// The time of SIGTERM; `None` after that order.
    terminate: Option<Instant>,
    /// `None` after the order to kill.
    kill: Option<Instant>,
    /// The time by which the init must have carried out the order to kill.
    abandon: Option<Instant>,
    seen: Seen,
}

/// What the helper has reported so far.
#[derive(Default)]
struct Seen {
    /// The terminal of the user, if the command has one.
    relay: Option<Arc<Relay>>,
    init: Option<OwnedFd>,
    ready: Option<Enforcement>,
    listener: Option<Arc<Listener>>,
    clients: Option<Clients>,
    connections: Option<RunConnections>,
    failure: Option<Failure>,
    /// The reason why a report of the helper could not be read.
    lost: Option<String>,
    /// The answer to the last order to cover a path.
    covered: Option<std::result::Result<(), String>>,
    /// The first reason to end the run early.
    ended: Option<EarlyEnd>,
    status: Option<Status>,
    killed: Option<u32>,
    /// True if the helper and all of its processes have closed the socket.
    closed: bool,
}

/// Runs a command until all of its processes have ended. `repositories` reports a setting of a repository that is
/// replaced during the run.
pub(crate) fn supervise(
    helper: &Helper,
    prepared: &mut Prepared,
    steps: Steps,
    watch: Option<Watch<'_>>,
    repositories: Option<&mut git_dir::Watch>,
) -> Result<Outcome> {
    let (started, timeout) = (Instant::now(), prepared.ruling.decision.timeout);
    let plan = &mut prepared.ruling.plan;
    let group = if plan.require.contains(&Layer::Cgroup) { Group::make(&plan.limits) } else { None };
    plan.cgroup = group.as_ref().map(|group| group.0.clone());
    let (output, writers) = Output::new(watch)?;
    let socket = helper.begin(plan, prepared.stdin.take(), writers)?;
    let (terminate, kill) = (started + timeout.saturating_sub(GRACE.min(timeout / 10)), started + timeout);
    let (terminate, kill, abandon) = (Some(terminate), Some(kill), None);
    let seen = Seen::default();
    let mut supervised = Supervised { prepared, socket, output, started, steps, terminate, kill, abandon, seen };
    supervised.follow(repositories);
    terminal::restore();
    drop(group);
    supervised.finish()
}

impl Supervised<'_, '_> {
    /// Follows the run until all processes have ended.
    fn follow(&mut self, mut repositories: Option<&mut git_dir::Watch>) {
        let (mut looked, mut noted) = (Instant::now(), Instant::now());
        while !self.seen.closed {
            self.wait(repositories.as_deref());
            if noted.elapsed() >= SIGNAL_POLL {
                self.prepared.open.iter().for_each(OpenRun::note_alive);
                noted = Instant::now();
            }
            self.receive();
            self.decide_steps();
            if let Some(connections) = &mut self.seen.connections {
                self.output.say_all(connections.record(&mut self.steps.recorder, false));
            }
            let now = Instant::now();
            // The time that an answer takes does not count.
            if self.steps.is_waiting() {
                for at in [&mut self.kill, &mut self.terminate].into_iter().flatten() {
                    *at += now - looked;
                }
            }
            looked = now;
            self.output.read();
            self.seen.relay.iter().for_each(|relay| relay.follow());
            let wrong = repositories.as_mut().and_then(|watch| self.look_after(watch).err());
            let evaded = self.steps.is_evaded.then_some(EarlyEnd::Evaded);
            if let Some(ended) = wrong.or(evaded) {
                self.end(ended);
            }
            self.enforce(Instant::now());
        }
        if let Some(connections) = &mut self.seen.connections {
            self.output.say_all(connections.record(&mut self.steps.recorder, true));
        }
        // All writers are dead, but the pipes may still contain output.
        while self.output.read() {}
        self.output.say_all(self.outlived());
        if let (Some(status), None, None) = (&self.seen.status, &self.seen.ended, &self.seen.relay) {
            let (errors, plan) = (self.output.errors(), &self.prepared.ruling.plan);
            let guess = guess_cause(&errors, status.code != Some(0), plan, &self.steps.rules.policy);
            self.output.say_all(guess);
        }
    }

    /// The message about processes that were ended because their command had ended.
    fn outlived(&self) -> Option<String> {
        let count = self.seen.killed.filter(|killed| *killed > 0 && self.seen.ended.is_none())?;
        self.seen.status.as_ref()?;
        let were =
            if count == 1 { "process was still running and was" } else { "processes were still running and were" };
        let advice =
            if self.steps.is_agent { "" } else { "; start and use it in one line, or work in `cp-exec agent`" };
        Some(format!("{count} {were} ended{advice}"))
    }

    /// Covers the files of repositories anew that another process replaced, while the run is stopped.
    fn look_after(&mut self, watch: &mut git_dir::Watch) -> std::result::Result<(), EarlyEnd> {
        let is_replaced = watch.look().map_err(EarlyEnd::Guard)?;
        let is_private = self.seen.ready.as_ref().is_some_and(Enforcement::is_private);
        if !is_replaced || !is_private || self.seen.closed || self.kill.is_none() {
            return Ok(());
        }
        self.order(&Order::Freeze);
        watch.cover_anew(&mut |path| self.cover(path)).map_err(EarlyEnd::Conflict)?;
        self.order(&Order::Thaw);
        Ok(())
    }

    /// Makes a path read-only in the run.
    fn cover(&mut self, path: &Path) -> std::result::Result<(), String> {
        self.seen.covered = None;
        self.order(&Order::Cover(path.to_owned()));
        let end = Instant::now() + COVERING;
        while self.seen.covered.is_none() && !self.seen.closed && Instant::now() < end {
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
            self.receive();
        }
        // A run that has ended needs no cover.
        self.seen.covered.take().unwrap_or(if self.seen.closed {
            Ok(())
        } else {
            Err("a setting could not be covered".to_owned())
        })
    }

    /// Decides about the programs that wait to be started. Refusals are written to the standard error of the run.
    fn decide_steps(&mut self) {
        let Some(listener) = &self.seen.listener else { return };
        let steps = &mut self.steps;
        let served = steps.serve(listener);
        self.output.say_all(steps.messages.drain(..));
        if let Some(clients) = &mut self.seen.clients {
            clients.serve(|call| steps.tool_call(call));
        }
        if served.is_err() {
            (self.seen.clients, self.seen.listener) = (None, None);
        }
    }

    /// Kills no later than at this time, unless that was ordered before.
    fn kill_by(&mut self, time: Instant) {
        self.kill = self.kill.map(|kill| kill.min(time));
    }

    /// Kills a command that must not continue.
    fn end(&mut self, ended: EarlyEnd) {
        self.seen.ended.get_or_insert(ended);
        self.order_kill(Instant::now());
    }

    /// Ends a command whose time is over, and processes that outlive the command.
    fn enforce(&mut self, now: Instant) {
        let is_hung_up = self.seen.relay.as_ref().is_some_and(|relay| relay.is_hung_up());
        if self.seen.ended.is_none() && (signals::interrupted() || is_hung_up) {
            let is_keyboard = signals::interrupted() && !signals::ending();
            self.kill_by(now + self.prepared.patience);
            self.stop(EarlyEnd::Interrupted, if is_keyboard { &Order::Interrupt } else { &Order::Terminate });
        }
        // Remaining processes are killed after all output is closed, unless a signal asked them to end.
        if self.seen.status.is_some() && self.seen.ended.is_none() && self.output.is_closed() {
            self.order_kill(now);
        }
        // A command that receives SIGTERM has timed out, regardless of its exit status.
        if self.terminate.is_some_and(|at| now >= at) {
            self.stop(EarlyEnd::TimedOut, &Order::Terminate);
        }
        if self.kill.is_some_and(|at| now >= at) {
            self.order_kill(now);
        }
        if self.abandon.is_some_and(|at| now >= at) {
            self.abandon = None;
            self.kill_init();
        }
    }

    /// Sends a signal to the command, which can end by itself until it is killed.
    fn stop(&mut self, ended: EarlyEnd, order: &Order) {
        self.seen.ended.get_or_insert(ended);
        self.terminate = None;
        self.order(order);
    }

    fn wait(&self, repositories: Option<&git_dir::Watch>) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        fds.extend(repositories.and_then(git_dir::Watch::source));
        fds.extend(self.output.sources());
        fds.extend(self.seen.listener.iter().map(|listener| PollFd::new(&listener.fd, PollFlags::IN)));
        fds.extend(self.seen.clients.iter().flat_map(Clients::sources));
        let deadlines = [self.terminate, self.kill, self.abandon].into_iter().flatten();
        let left = deadlines
            .map(|at| at.saturating_duration_since(Instant::now()))
            .min()
            .unwrap_or(SIGNAL_POLL)
            .min(SIGNAL_POLL);
        let _ = rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref());
    }

    /// Reads the reports that have arrived.
    fn receive(&mut self) {
        loop {
            let taken = match sandbox::receive(self.socket.as_fd()) {
                Ok(Some((report, fds))) => self.take(report, fds),
                Ok(None) => {
                    self.seen.closed = true;
                    return;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => Err(e.to_string()),
            };
            // The state of the helper is unknown, so the run is killed. The loop ends when all processes are dead.
            if let Err(why) = taken {
                self.seen.lost.get_or_insert(why);
                self.order_kill(Instant::now());
            }
        }
    }

    /// Takes a report and its descriptors.
    fn take(&mut self, report: Report, mut fds: Vec<OwnedFd>) -> std::result::Result<(), String> {
        let mut given = || fds.pop().ok_or_else(|| "a report came without its descriptor".to_owned());
        let seen = &mut self.seen;
        match report {
            Report::Init => seen.init = Some(given()?),
            Report::Listener => seen.listener = Some(Arc::new(Listener { fd: given()?, shown: self.output.nodes() })),
            Report::Clients => seen.clients = Some(Clients { listener: given()?, open: [].into() }),
            Report::Terminal => {
                let terminal = given()?;
                let begun = terminal.try_clone().and_then(Relay::begin);
                let relay = begun.and_then(|relay| self.output.read_from(terminal).map(|()| relay));
                seen.relay = Some(relay.map_err(|e| format!("the terminal cannot be relayed: {e}"))?);
            }
            Report::Stopped => {
                while self.output.read() {}
                seen.relay.iter().for_each(|relay| relay.suspend());
                self.order(&Order::Continue);
            }
            Report::Namespace => {
                let (listed, shown) = (self.prepared.ruling.plan.network.destinations(), self.output.nodes());
                let connections = RunConnections::start(listed, self.prepared.quiet, fds, shown);
                let failed = |e| format!("the network of its names cannot be served: {e}");
                seen.connections = Some(connections.map_err(failed)?);
            }
            Report::Ready(enforcement) => {
                // Without a listener nothing decides about the programs inside.
                seen.clients = seen.clients.take().filter(|_| enforcement.listener);
                seen.ready = Some(*enforcement);
            }
            Report::Failed(failure) => seen.failure = Some(failure),
            Report::Covered(covered) => seen.covered = Some(covered),
            Report::Exited(status) => {
                seen.status = Some(status);
                self.terminate = None;
                // A shell may end at a signal before its children.
                if self.seen.ended.is_none() {
                    self.kill_by(Instant::now() + DRAIN);
                }
            }
            Report::Killed(count) => seen.killed = Some(count),
        }
        Ok(())
    }

    /// Sends an order to the init of the sandbox. An error means that the init has ended.
    fn order(&self, order: &Order) {
        drop(sandbox::send(self.socket.as_fd(), order, &[]));
    }

    fn order_kill(&mut self, now: Instant) {
        if self.kill.take().is_some() {
            self.terminate = None;
            self.abandon = Some(now + KILLING);
            self.order(&Order::Kill);
        }
    }

    /// Kills the init of the namespace, and with it the namespace.
    fn kill_init(&self) {
        match &self.seen.init {
            Some(init) => drop(rustix::process::pidfd_send_signal(init, Signal::KILL)),
            // If the init cannot be reached, closing the socket ends the run.
            None => {
                let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
            }
        }
    }

    /// The outcome, or the reason why there is none.
    fn finish(self) -> Result<Outcome> {
        // The helper keeps its end of the socket open until the first process of the run, and with it the namespace,
        // has ended.
        let (private, scratch) =
            (self.seen.ready.as_ref().is_some_and(Enforcement::is_private), &self.prepared.ruling.plan.view.scratch);
        if !private && fs::remove_dir(scratch).is_err_and(|e| e.kind() != ErrorKind::NotFound) {
            drop(fs::remove_dir_all(scratch));
        }
        if let (Some(why), None) = (&self.seen.lost, &self.seen.failure) {
            let message = format!("a report of the sandbox helper could not be read: {why}; the command may have run");
            return Err(Error::new(Code::Unknown, message));
        }
        // A run that is ended during its setup can fail at any step. That failure is neither an error of the command
        // nor a bug.
        let own_fault = self.seen.failure.as_ref().is_some_and(|failure| !matches!(failure, Failure::Setup(_)));
        if let (None, Some(ended), false) = (&self.seen.ready, &self.seen.ended, own_fault) {
            return Err(ended.before_start(&self.prepared.ruling.plan.argv[0], self.prepared.ruling.decision.timeout));
        }
        if let Some(failure) = self.seen.failure {
            return Err(failure.into());
        }
        let [stdout, stderr] = self.output.captured();
        let Some(enforcement) = self.seen.ready else {
            let message = "the sandbox helper ended before it started the command";
            return Err(Error::new(Code::Unknown, message).with("stderr", stderr.text().trim()));
        };
        Ok(Outcome {
            status: self.seen.status.unwrap_or(Status { code: None, signal: Some(9) }),
            ended: self.seen.ended,
            stdout,
            stderr,
            duration: self.started.elapsed(),
            enforcement: Enforcement { killed_processes: self.seen.killed, ..enforcement },
            steps: self.steps.finish(),
            connections: self.seen.connections.and_then(RunConnections::report),
            changes: Changes::default(),
        })
    }
}
