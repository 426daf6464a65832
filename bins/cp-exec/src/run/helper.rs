//! The helper: the process that starts each run in its own sandbox.
//!
//! A [`Group`] limits the processes and the memory of one run together. It is created only if the policy requests it, because moving a process into a group can take the kernel tens of milliseconds.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cp_common::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};

use super::result::{NotRun, Outcome, Stream, Watch};
use super::steps::Steps;
use super::supervise::{Deadlines, Pipe, Supervised};
use crate::guard::settle::OpenRun;
use crate::sandbox::plan::{Limits, Plan};
use crate::{git_dir, sandbox};

/// The parameters of one run, in addition to its plan.
pub(crate) struct Run<'a, 'r> {
    /// The standard input of the command; `None` is `/dev/null`.
    pub stdin: Option<OwnedFd>,
    pub timeout: Duration,
    /// The time before the deadline at which the command gets SIGTERM.
    pub grace: Duration,
    /// The output size at which the command is killed; `None` means no limit.
    pub watch: Option<Watch<'a>>,
    /// Reports a setting of a repository that is replaced during the run.
    pub repositories: Option<&'r mut git_dir::Watch>,
    /// Decides about the programs that the command starts; `None` allows all.
    pub steps: Option<Steps>,
    /// The time that the command gets to end by itself after this program received a signal to stop.
    pub patience: Duration,
    /// The names whose refusal needs no message.
    pub quiet: &'static [String],
    /// The marker of the run.
    pub open: Option<&'r OpenRun>,
}

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
    pub(crate) fn run(&self, plan: &Plan, run: Run<'_, '_>) -> std::result::Result<Outcome, NotRun> {
        let started = Instant::now();
        let group = if plan.wants_cgroup { Group::make(&plan.limits) } else { None };
        let grouped = group.as_ref().map(|group| Plan { cgroups: group.directories().to_vec(), ..plan.clone() });
        let plan = grouped.as_ref().unwrap_or(plan);
        let (socket, pipes) = self.begin(plan, run.stdin)?;
        let limits = Deadlines::new(started, run.timeout, run.grace, run.patience);
        let mut supervised = Supervised::new(socket, pipes, limits, run.steps, run.open);
        supervised.quiet = run.quiet;
        supervised.follow(plan, run.watch, run.repositories);
        if let Some(group) = &group {
            group.kill();
        }
        supervised.finish(plan, started)
    }

    fn begin(&self, plan: &Plan, stdin: Option<OwnedFd>) -> Result<(OwnedFd, [Pipe; 2])> {
        let (ours, theirs) = socket_pair()?;
        let (out, out_writer) = Pipe::new(Stream::Out)?;
        let (err, err_writer) = Pipe::new(Stream::Err)?;
        let stdin = match stdin {
            Some(stdin) => stdin,
            None => File::open("/dev/null").map_err(|e| Error::io("cannot open /dev/null", e))?.into(),
        };
        let lost = |e| Error::io("cannot ask the sandbox helper", e);
        let streams = [theirs.as_fd(), out_writer.as_fd(), err_writer.as_fd()];
        sandbox::send_run(self.control.as_fd(), plan.network_kind(), streams).map_err(lost)?;
        drop(theirs);
        sandbox::send_plan(ours.as_fd(), plan, stdin.as_fd()).map_err(lost)?;
        Ok((ours, [out, err]))
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

const ROOT: &str = "/sys/fs/cgroup";
/// The time after which killing gives up.
const KILL: Duration = Duration::from_millis(500);

/// Counts the groups of this process, to number them.
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// The directories of a group: one for cgroup v2, one for each controller for v1.
pub(crate) struct Group(Vec<PathBuf>);

impl Group {
    /// Creates a group with these limits below the group of this process; `None` if that group is not writable.
    pub(crate) fn make(limits: &Limits) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("cp-exec-{}-{}", std::process::id(), GROUPS.fetch_add(1, Ordering::Relaxed));
        // The helper and the init are also members.
        let (processes, memory) = ((limits.processes + 2).to_string(), limits.memory_bytes.to_string());
        Self::version_1(&own, &name, &processes, &memory).or_else(|| Self::version_2(&own, &name, &processes, &memory))
    }

    /// The directories to which the processes of the run are added.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.0
    }

    /// Kills all processes of the group. With a process namespace there are none left.
    pub(crate) fn kill(&self) {
        let Some(directory) = self.0.first() else { return };
        let end = Instant::now() + KILL;
        while Instant::now() < end {
            let left = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            if left.is_empty() {
                return;
            }
            // Version 2 kills all processes at once, including those that fork in the meantime. Version 1 has no such
            // file, so a process limit of 0 stops forks first.
            if fs::write(directory.join("cgroup.kill"), "1").is_err() {
                drop(fs::write(directory.join("pids.max"), "0"));
                for pid in left.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn version_1(own: &str, name: &str, processes: &str, memory: &str) -> Option<Self> {
        // If an error occurs, `Drop` removes the groups that were created.
        let mut group = Self(Vec::new());
        for (controller, file, limit) in [("pids", "pids.max", processes), ("memory", "memory.limit_in_bytes", memory)]
        {
            let place = own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let mounted = fields.next()?.split(',').any(|known| known == controller);
                mounted.then(|| fields.next()).flatten()
            })?;
            let directory = Path::new(ROOT).join(controller).join(place.trim_start_matches('/')).join(name);
            fs::create_dir(&directory).ok()?;
            group.0.push(directory.clone());
            fs::write(directory.join(file), limit).ok()?;
        }
        Some(group)
    }

    fn version_2(own: &str, name: &str, processes: &str, memory: &str) -> Option<Self> {
        let place = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let parent = Path::new(ROOT).join(place.trim_start_matches('/'));
        let controllers = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        if !["pids", "memory"].iter().all(|needed| controllers.split_whitespace().any(|known| known == *needed)) {
            return None;
        }
        let directory = parent.join(name);
        fs::create_dir(&directory).ok()?;
        let group = Self(vec![directory.clone()]);
        fs::write(directory.join("pids.max"), processes).ok()?;
        fs::write(directory.join("memory.max"), memory).ok()?;
        // A kernel without swap accounting has no such file.
        drop(fs::write(directory.join("memory.swap.max"), "0"));
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.0 {
            // All processes are dead, but the kernel may not have removed them yet.
            for _ in 0..50 {
                match fs::remove_dir(directory) {
                    Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}
