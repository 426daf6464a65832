//! The helper: the process that starts each run in its own sandbox, and the control group of a run.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::keys::random;
use cp_common::{Error, Result};
use os_pipe::PipeWriter;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::sandbox;
use crate::sandbox::plan::{Limits, Plan};

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

    /// Sends the plan, and returns the socket of the run. `stdin`: the standard input; `None` is `/dev/null`.
    pub(super) fn begin(&self, plan: &Plan, stdin: Option<OwnedFd>, [out, err]: [PipeWriter; 2]) -> Result<OwnedFd> {
        let (ours, theirs) = socket_pair()?;
        let stdin = match stdin {
            Some(stdin) => stdin,
            None => File::open("/dev/null").map_err(|e| Error::io("cannot open /dev/null", e))?.into(),
        };
        let lost = |e| Error::io("cannot ask the sandbox helper", e);
        let text = serde_json::to_vec(plan).map_err(std::io::Error::from);
        let file = text.and_then(|text| sandbox::memory_file("plan", &text)).map_err(lost)?;
        let fds = [theirs.as_fd(), file.as_fd(), stdin.as_fd(), out.as_fd(), err.as_fd()];
        sandbox::send(self.control.as_fd(), &(), &fds).map_err(lost)?;
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

/// True if a run can get a control group.
pub(crate) fn can_make_group() -> bool {
    Group::make(&Limits { cpu_seconds: 1, processes: 1, memory_bytes: 1 << 20, scratch_bytes: 0 }).is_some()
}

const ROOT: &str = "/sys/fs/cgroup";
/// The time after which killing gives up.
const KILL: Duration = Duration::from_millis(500);

/// A control group of version 2, by its directory. It limits the processes and the memory of one run together, and is
/// made only if the policy requests it, because moving a process into a group can take the kernel tens of milliseconds.
pub(super) struct Group(pub PathBuf);

impl Group {
    /// Creates a group with these limits below the group of this process; `None` if that group is not writable, or of
    /// version 1.
    pub(super) fn make(limits: &Limits) -> Option<Self> {
        Self::make_below(Path::new(ROOT), &fs::read_to_string("/proc/self/cgroup").ok()?, limits)
    }

    /// The same below a root. `own` lists the groups of this process.
    fn make_below(root: &Path, own: &str, limits: &Limits) -> Option<Self> {
        let place = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let parent = root.join(place.trim_start_matches('/'));
        let controllers = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        if !["pids", "memory"].iter().all(|needed| controllers.split_whitespace().any(|known| known == *needed)) {
            return None;
        }
        let directory = parent.join(format!("cp-exec-{:x}", u64::from_ne_bytes(random().ok()?)));
        fs::create_dir(&directory).ok()?;
        // If an error occurs, `Drop` removes the group.
        let group = Self(directory);
        // The helper and the init are also members.
        fs::write(group.0.join("pids.max"), (limits.processes + 2).to_string()).ok()?;
        fs::write(group.0.join("memory.max"), limits.memory_bytes.to_string()).ok()?;
        // A kernel without swap accounting has no such file.
        drop(fs::write(group.0.join("memory.swap.max"), "0"));
        Some(group)
    }
}

impl Drop for Group {
    /// Kills all processes of the group, including those that fork in the meantime, and removes it. With a process
    /// namespace there are none left, but the kernel may not have removed them yet.
    fn drop(&mut self) {
        let end = Instant::now() + KILL;
        let is_busy = || fs::remove_dir(&self.0).is_err_and(|e| e.kind() == ErrorKind::ResourceBusy);
        while is_busy() && Instant::now() < end {
            drop(fs::write(self.0.join("cgroup.kill"), "1"));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cpu_seconds: 1, processes: 40, memory_bytes: 3000, scratch_bytes: 1 };

    /// Directories and files cannot show that the kernel enforces the values.
    #[test]
    fn group_is_made_only_in_version_2_with_both_controllers() {
        for (own, controllers, is_made) in [
            ("0::/a/b\n", "cpu memory pids", true),
            ("3:pids:/a/b\n2:memory:/a/b\n0::/a/b\n", "pids memory", true),
            ("3:pids:/a/b\n2:memory:/a/b\n", "pids memory", false),
            ("0::/a/b\n", "cpu memory", false),
            ("0::/a/b\n", "pids.max memory", false),
            ("0::/a\n", "pids memory", false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let parent = root.path().join("a/b");
            fs::create_dir_all(&parent).unwrap();
            fs::write(parent.join("cgroup.subtree_control"), controllers).unwrap();
            let group = Group::make_below(root.path(), own, &LIMITS);
            assert_eq!(group.is_some(), is_made, "{own} {controllers}");
            let Some(group) = group else { continue };
            assert_eq!(group.0.parent(), Some(&*parent));
            let read = |name: &str| fs::read_to_string(group.0.join(name)).unwrap();
            let found = ["pids.max", "memory.max", "memory.swap.max"].map(read);
            assert_eq!(found, ["42", "3000", "0"]);
        }
    }
}
