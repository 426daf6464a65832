//! Runs one planned command: starts the helper, captures, keeps the deadline, and leaves nothing alive.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cp_common::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::capture::{Capture, Captured};
use crate::cgroup::Group;
use crate::sandbox::plan::{Enforcement, Failure, Order, Plan, Report, Status};
use crate::sandbox::{self, Received};

/// After the command itself has ended, how long its output may still be held open by what it left behind.
const DRAIN: Duration = Duration::from_millis(200);
/// How long the init may take to count and kill, before it is killed itself.
const OBEY: Duration = Duration::from_millis(30);
/// The same where it has to look for what is left, process by process: killed in the middle of that it would leave the rest alive.
const OBEY_BY_HAND: Duration = Duration::from_millis(300);
/// How often a wait looks for a signal, which wakes only the one thread that the kernel hands it to.
const LOOK: Duration = Duration::from_millis(50);

/// Sees the bytes of a command as they come.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Stream, &[u8]);

/// What one run takes beside its plan.
pub(crate) struct Run<'a> {
    /// What the command reads on its standard input; none is `/dev/null`.
    pub stdin: Option<OwnedFd>,
    /// Where its standard output goes instead of being captured.
    pub stdout: Option<OwnedFd>,
    /// When everything is killed.
    pub timeout: Duration,
    /// How long before that it is asked to end.
    pub grace: Duration,
    /// More output than this kills it; none is no limit.
    pub output_limit: Option<u64>,
    /// Sees the bytes as they come.
    pub watch: Option<Watch<'a>>,
    /// Says whether this program was told to stop.
    pub interrupted: fn() -> bool,
}

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Why a command was ended before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its time was up.
    TimedOut,
    /// It wrote more than it may.
    OutputLimit,
    /// This program was told to stop.
    Interrupted,
}

/// What became of a command that started.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How its own process ended.
    pub status: Status,
    /// Why it was ended, if it did not end by itself.
    pub ended: Option<Ended>,
    /// How many processes were left and killed, where that is known.
    pub killed_processes: Option<u32>,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// From the start of the helper to the end of everything.
    pub duration: Duration,
    /// The layers it ran under.
    pub enforcement: Enforcement,
}

/// Why there was no outcome.
#[derive(Debug)]
pub(crate) enum NotRun {
    /// The helper says why.
    Failed(Failure),
    /// The helper could not be started or was lost.
    Lost(Error),
}

impl From<Error> for NotRun {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

/// The process that starts runs: this program once more, single-threaded and with nothing of ours in it. It ends with this.
pub(crate) struct Helper {
    control: OwnedFd,
    process: duct::Handle,
}

impl Helper {
    /// Starts it. The kernel ends it with the thread that calls this, which must be the main one.
    pub(crate) fn start() -> Result<Self> {
        let (control, theirs) = socket_pair()?;
        let process = duct::cmd("/proc/self/exe", [sandbox::VERB])
            .full_env(std::iter::empty::<(&str, &str)>())
            .stdin_file(theirs)
            .stdout_null()
            .stderr_null()
            .unchecked()
            .start()
            .map_err(|e| Error::io("cannot start the sandbox helper", e))?;
        Ok(Self { control, process })
    }

    /// Whether it is there to be asked.
    pub(crate) fn lives(&self) -> bool {
        let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|events| events == 0)
    }

    /// Runs a planned command to the end of everything it started.
    pub(crate) fn run(&self, plan: &Plan, run: Run<'_>) -> std::result::Result<Outcome, NotRun> {
        let started = Instant::now();
        let group = if plan.wants_cgroup { Group::make(&plan.limits) } else { None };
        let grouped = group.as_ref().map(|group| Plan { cgroups: group.directories().to_vec(), ..plan.clone() });
        let plan = grouped.as_ref().unwrap_or(plan);
        let mut watched = self.begin(plan, run.stdin, run.stdout)?;
        let mut events = Events::new(started, run.timeout, run.grace, run.output_limit);
        watched.follow(&mut events, run.watch, run.interrupted);
        if let Some(group) = &group {
            group.kill();
        }
        watched.finish(plan, &events, started)
    }

    fn begin(&self, plan: &Plan, stdin: Option<OwnedFd>, stdout: Option<OwnedFd>) -> Result<Watched> {
        let (ours, theirs) = socket_pair()?;
        let (mut out, out_writer) = pipe(Stream::Out)?;
        let out_writer = stdout.map_or(OwnedFd::from(out_writer), |elsewhere| {
            out.source = None;
            elsewhere
        });
        let (err, err_writer) = pipe(Stream::Err)?;
        let err_writer = OwnedFd::from(err_writer);
        let stdin = match stdin {
            Some(stdin) => stdin,
            None => File::open("/dev/null").map_err(|e| Error::io("cannot open /dev/null", e))?.into(),
        };
        let lost = |e| Error::io("cannot ask the sandbox helper", e);
        let streams = [theirs.as_fd(), out_writer.as_fd(), err_writer.as_fd()];
        sandbox::send_run(self.control.as_fd(), plan.network, streams).map_err(lost)?;
        drop(theirs);
        sandbox::send_plan(ours.as_fd(), plan, stdin.as_fd()).map_err(lost)?;
        Ok(Watched {
            socket: ours,
            init: None,
            pipes: [out, err],
            ready: None,
            failure: None,
            status: None,
            killed: None,
            ended: false,
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        drop(self.process.wait());
    }
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|e| Error::io("cannot make a socket for the sandbox helper", e))
}

fn pipe(stream: Stream) -> Result<(Pipe, os_pipe::PipeWriter)> {
    let (reader, writer) = os_pipe::pipe().map_err(|e| Error::io("cannot make a pipe", e))?;
    let source = File::from(OwnedFd::from(reader));
    rustix::io::ioctl_fionbio(&source, true).map_err(|e| Error::io("cannot prepare a pipe", e))?;
    Ok((Pipe { stream, source: Some(source), capture: Capture::new() }, writer))
}

/// A run under way, and everything we hold of it.
struct Watched {
    socket: OwnedFd,
    init: Option<OwnedFd>,
    pipes: [Pipe; 2],
    ready: Option<Enforcement>,
    failure: Option<Failure>,
    status: Option<Status>,
    killed: Option<u32>,
    ended: bool,
}

struct Pipe {
    stream: Stream,
    source: Option<File>,
    capture: Capture,
}

/// When something has to happen, and what has happened.
struct Events {
    terminate: Option<Instant>,
    kill: Instant,
    /// The order to kill was given; by this time the init must have obeyed.
    obey: Option<Instant>,
    output_limit: Option<u64>,
    ended: Option<Ended>,
    /// The command was asked to end, because its time is nearly up.
    asked: bool,
    ordered: bool,
}

impl Events {
    fn new(started: Instant, timeout: Duration, grace: Duration, output_limit: Option<u64>) -> Self {
        let kill = started + timeout;
        let terminate = (!grace.is_zero()).then(|| started + timeout.saturating_sub(grace));
        Self { terminate, kill, obey: None, output_limit, ended: None, asked: false, ordered: false }
    }

    fn next(&self) -> Instant {
        let kill = if self.ordered { None } else { Some(self.kill) };
        let far = self.kill + Duration::from_secs(1);
        [self.terminate, kill, self.obey].into_iter().flatten().min().unwrap_or(far)
    }
}

impl Watched {
    /// Follows the command until everything has ended, or was killed.
    fn follow(&mut self, events: &mut Events, mut watch: Option<Watch<'_>>, interrupted: fn() -> bool) {
        let mut buffer = vec![0; 64 * 1024];
        while !self.ended {
            self.wait(events.next());
            self.receive(events);
            let mut total = 0;
            for pipe in &mut self.pipes {
                pipe.read(&mut buffer, &mut watch);
                total += pipe.capture.total();
            }
            let now = Instant::now();
            if interrupted() && events.ended.is_none() {
                events.ended = Some(Ended::Interrupted);
                self.order_kill(events, now);
            }
            if events.output_limit.is_some_and(|limit| total > limit) && events.ended.is_none() {
                events.ended = Some(Ended::OutputLimit);
                self.order_kill(events, now);
            }
            // What outlives the command is no longer wanted, once its output can no longer grow.
            if self.status.is_some() && self.pipes.iter().all(|pipe| pipe.source.is_none()) {
                self.order_kill(events, now);
            }
            if events.terminate.is_some_and(|at| now >= at) {
                events.terminate = None;
                events.asked = true;
                sandbox::send_order(self.socket.as_fd(), Order::Terminate);
            }
            if now >= events.kill && !events.ordered {
                if self.status.is_none() && events.ended.is_none() {
                    events.ended = Some(Ended::TimedOut);
                }
                self.order_kill(events, now);
            }
            if events.obey.is_some_and(|at| now >= at) {
                events.obey = None;
                self.kill_init();
            }
        }
        // All writers are dead; what they wrote may still be in the pipes.
        for pipe in &mut self.pipes {
            while pipe.read(&mut buffer, &mut watch) {}
        }
    }

    fn wait(&self, until: Instant) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        let sources = self.pipes.iter().filter_map(|pipe| pipe.source.as_ref());
        fds.extend(sources.map(|source| PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN)));
        let left = until.saturating_duration_since(Instant::now()).min(LOOK);
        let timeout =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
    }

    /// Takes the reports that have come.
    fn receive(&mut self, events: &mut Events) {
        loop {
            match sandbox::receive_report(self.socket.as_fd()) {
                Ok(Received::Report(report, fd)) => match report {
                    Report::Init => self.init = fd,
                    Report::Ready(enforcement) => self.ready = Some(enforcement),
                    Report::Failed(failure) => self.failure = Some(failure),
                    Report::Exited(status) => {
                        self.status = Some(status);
                        // Whatever it made of the request, it did not end by itself.
                        if events.asked && events.ended.is_none() {
                            events.ended = Some(Ended::TimedOut);
                        }
                        events.terminate = None;
                        events.kill = events.kill.min(Instant::now() + DRAIN);
                    }
                    Report::Killed(count) => self.killed = Some(count),
                },
                Ok(Received::Nothing) => return,
                Ok(Received::End) | Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn order_kill(&self, events: &mut Events, now: Instant) {
        if !events.ordered {
            events.ordered = true;
            events.terminate = None;
            let whole = self.ready.as_ref().is_some_and(|ready| ready.kill == "pid_namespace");
            events.obey = Some(now + if whole { OBEY } else { OBEY_BY_HAND });
            sandbox::send_order(self.socket.as_fd(), Order::Kill);
        }
    }

    /// Kills the init of the namespace, and the namespace with it.
    fn kill_init(&self) {
        match &self.init {
            Some(init) => drop(rustix::process::pidfd_send_signal(init, Signal::KILL)),
            // An init that cannot be told any more ends everything.
            None => {
                let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
            }
        }
    }

    fn finish(self, plan: &Plan, events: &Events, started: Instant) -> std::result::Result<Outcome, NotRun> {
        // The helper held its end of the socket until the first process of the run was gone, and with it the whole namespace.
        let private = self.ready.as_ref().is_some_and(|ready| ready.namespaces.iter().any(|name| name == "mount"));
        if !private && fs::remove_dir(&plan.scratch).is_err_and(|e| e.kind() != ErrorKind::NotFound) {
            drop(fs::remove_dir_all(&plan.scratch));
        }
        if let Some(failure) = self.failure {
            return Err(NotRun::Failed(failure));
        }
        let [out, err] = self.pipes;
        let stderr = err.capture.finish();
        let Some(enforcement) = self.ready else {
            let said = String::from_utf8_lossy(&stderr.bytes).trim().to_owned();
            let message = "the sandbox helper ended before it started the command";
            return Err(NotRun::Lost(Error::new(cp_common::Code::Unknown, message).with("stderr", said)));
        };
        Ok(Outcome {
            status: self.status.unwrap_or(Status { code: None, signal: Some(9) }),
            ended: events.ended,
            killed_processes: self.killed,
            stdout: out.capture.finish(),
            stderr,
            duration: started.elapsed(),
            enforcement,
        })
    }
}

impl Pipe {
    /// Takes what is there; true if there may be more.
    fn read(&mut self, buffer: &mut [u8], watch: &mut Option<Watch<'_>>) -> bool {
        let Some(source) = &mut self.source else { return false };
        match source.read(buffer) {
            Ok(0) => self.source = None,
            Ok(length) => {
                self.capture.add(&buffer[..length]);
                if let Some(watch) = watch {
                    watch(self.stream, &buffer[..length]);
                }
                return true;
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {}
            Err(_) => self.source = None,
        }
        false
    }
}

/// A file with these bytes, to be a command's standard input.
pub(crate) fn stdin_of(bytes: &[u8]) -> Result<OwnedFd> {
    sandbox::memory_file("stdin", bytes).map_err(|e| Error::io("cannot prepare the standard input", e))
}

/// The descriptor of our own standard input, for a command that is to read it.
pub(crate) fn own_stdin() -> Result<OwnedFd> {
    let stdin: BorrowedFd<'_> = rustix::stdio::stdin();
    stdin.try_clone_to_owned().map_err(|e| Error::io("cannot pass the standard input on", e))
}
