//! The helper: the process that starts each run in its own sandbox.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use cp_common::{Error, Result};
use os_pipe::PipeWriter;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::group::Group;
use super::result::Outcome;
use super::streams::Output;
pub(crate) use super::supervise::Run;
use super::supervise::Supervised;
use crate::sandbox;
use crate::sandbox::plan::Plan;

/// The process that starts runs: this program, started again as a single-threaded process without inherited state. It
/// ends with this program.
pub(crate) struct Helper {
    /// Declared first, so that it is closed first: the process ends when this socket closes. An outer sandbox may
    /// refuse to shut the socket down.
    control: OwnedFd,
    process: HelperProcess,
}

/// A process that ends by itself after a moment, or is killed.
struct HelperProcess(duct::Handle);

const MOMENT: Duration = Duration::from_secs(1);

impl Helper {
    /// Starts the helper, which keeps the descriptor of a lock open while processes of its runs exist.
    pub(crate) fn start(lock: Option<i32>) -> Result<Self> {
        let (control, theirs) = socket_pair()?;
        let lock = lock.map(|lock| lock.to_string());
        let process = duct::cmd("/proc/self/exe", [sandbox::VERB].into_iter().chain(lock.as_deref()))
            .full_env(std::iter::empty::<(&str, &str)>())
            .stdin_file(theirs)
            .stdout_null()
            .stderr_null()
            .unchecked()
            .start()
            .map_err(|e| Error::io("cannot start the sandbox helper", e))?;
        Ok(Self { control, process: HelperProcess(process) })
    }

    /// The process session of the first process of every run.
    pub(super) fn session(&self) -> u32 {
        self.process.0.pids().first().copied().unwrap_or_default()
    }

    /// True if the helper still accepts runs.
    pub(super) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|events| events == 0)
    }

    /// Runs a planned command until all of its processes have ended.
    pub(crate) fn run(&self, plan: &Plan, mut run: Run<'_, '_>) -> Result<Outcome> {
        let started = Instant::now();
        let group = if plan.wants_cgroup { Group::make(&plan.limits) } else { None };
        let grouped = group.as_ref().map(|group| Plan { cgroup: Some(group.directory().to_owned()), ..plan.clone() });
        let plan = grouped.as_ref().unwrap_or(plan);
        let (output, writers) = Output::new(run.watch.take())?;
        let socket = self.begin(plan, run.stdin.take(), &writers)?;
        drop(writers);
        let mut supervised = Supervised::new(plan, socket, output, started, run);
        supervised.follow();
        if let Some(group) = &group {
            group.kill();
        }
        supervised.finish()
    }

    /// Sends the plan, and returns the socket of the run.
    fn begin(&self, plan: &Plan, stdin: Option<OwnedFd>, [out, err]: &[PipeWriter; 2]) -> Result<OwnedFd> {
        let (ours, theirs) = socket_pair()?;
        let stdin = match stdin {
            Some(stdin) => stdin,
            None => File::open("/dev/null").map_err(|e| Error::io("cannot open /dev/null", e))?.into(),
        };
        let lost = |e| Error::io("cannot ask the sandbox helper", e);
        let streams = [stdin.as_fd(), out.as_fd(), err.as_fd()];
        sandbox::send_run(self.control.as_fd(), theirs.as_fd(), plan, streams).map_err(lost)?;
        Ok(ours)
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        if !matches!(self.0.wait_timeout(MOMENT), Ok(Some(_))) {
            let _ = self.0.kill();
        }
    }
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|e| Error::io("cannot make a socket for the sandbox helper", e))
}
